// Cross entropy over rows of logits, forward and backward. Included by kernels.inc.h.

// softcap * tanh(x / softcap), or x.
template <class V, class C>
inline V capped(V x, C softcap) {
  return softcap > 0 ? softcap * tanh(x / softcap) : x;
}
// Its derivative, 1 - tanh(x / softcap)^2, as 4 s (1 - s) with s = sigmoid(-2 |x / softcap|): the difference would
// leave nothing of a logit far beyond the cap.
template <class V, class C>
inline V cap_slope(V x, C softcap) {
  const V ratio = x / softcap, s = sigmoid(2 * (ratio < 0 ? ratio : -ratio));
  return 4 * s * (1 - s);
}

// With z = log(sum(exp(x))) and t the target, for one row:
//   loss = w[t] (1 - smoothing) (z - x[t]) + smoothing / n sum(w (z - x)) + lse_square_scale z^2
// where w, the weights of classes, is 1 for all if there is none. All of it is multiplied by the weight of the token.
// Logits may be large and close together: z is the largest of them and a small number, whose sum, lse, is rounded.
// Differences from z are taken from one and then the other, and lse_rest is what lse has lost. As many rows at a time
// as a vector has lanes, which logarithms are taken of.
// cap(x) is what a logit counts as.
template <class T, class Cap>
void cross_entropy_of(const CrossEntropy& a, int64_t begin, int64_t end, const Cap& cap) {
  using C = ComputeType<T>;
  const int64_t n = a.length, stride = a.x_stride, ignored = a.ignore_index;
  const C smoothing = static_cast<C>(a.label_smoothing);
  const C *w = static_cast<const C*>(a.weight), *u = static_cast<const C*>(a.token_weight);
  const bool is_smoothed = smoothing > 0;
  const C weights = is_smoothed && w != nullptr ? sum<C>(n, [&](auto at) { return get(w, at); }) : C(n);
  const int64_t most = rows_at_a_time<C>(n);
  Columns<T> columns;
  for (int64_t i = begin; i < end; i += most) {
    const int64_t rows = end - i < most ? end - i : most;
    const T* const x = static_cast<const T*>(a.x) + i * stride;
    const int64_t* const target = a.target + i;
    const auto skips = [&](int64_t r) { return target[r] == ignored; };
    const auto value = [&](int64_t r, auto at) { return get(x + r * stride, at); };
    C targets[kLanes<C>] = {}, factors[kLanes<C>] = {};
    for (int64_t r = 0; r < rows; ++r) {
      if (skips(r)) continue;
      targets[r] = static_cast<C>(widen(x[r * stride + target[r]]));
      factors[r] = w == nullptr ? C(1) : w[target[r]];
    }
    LogSums<C> found;
    if (n <= kLanes<C>) {
      columns.read(x, stride, rows, n);
      found = log_sums<C>(Side{n}, [&](auto at) { return cap(get(&columns, at)); });
    } else {
      found = log_sums<C>(rows, n, value, cap, skips);
    }
    const Vector<C> top = found.top, log_total = log1p(found.beside), lse = top + log_total;
    const Vector<C> lse_rest = (top - lse) + log_total, chosen = cap(get(targets, Whole{0}));
    Vector<C> loss = get(factors, Whole{0}) * (C(1) - smoothing) * ((top - chosen) + log_total);
    for (int64_t r = 0; is_smoothed && r < rows; ++r) {
      const C from = top[r], of_all = log_total[r] * weights;
      const auto below = [&](auto at) {
        return (w == nullptr ? Vector<C>{} + C(1) : get(w, at)) * (from - cap(value(r, at)));
      };
      loss[r] += smoothing / C(n) * (sum<C>(n, below) + of_all);
    }
    loss += static_cast<C>(a.lse_square_scale) * lse * lse;
    for (int64_t r = 0; r < rows; ++r) {
      static_cast<C*>(a.loss)[i + r] = skips(r) ? C(0) : u == nullptr ? loss[r] : loss[r] * u[i + r];
      static_cast<C*>(a.lse)[i + r] = skips(r) ? C(0) : lse[r];
      static_cast<C*>(a.lse_rest)[i + r] = skips(r) ? C(0) : lse_rest[r];
    }
  }
}
template <class T>
void cross_entropy_rows(const CrossEntropy& a, int64_t begin, int64_t end) {
  const auto softcap = static_cast<ComputeType<T>>(a.softcap);
  if (!(softcap > 0)) return cross_entropy_of<T>(a, begin, end, [](auto values) { return values; });
  cross_entropy_of<T>(a, begin, end, [softcap](auto values) { return capped(values, softcap); });
}

template <class T>
void cross_entropy(const CrossEntropy& a, int64_t begin, int64_t end) {
  constexpr RowsRead<CrossEntropy> read[] = {{&CrossEntropy::x, &CrossEntropy::x_stride, &CrossEntropy::x_step}};
  for_rows_together<T>(a, begin, end, read, cross_entropy_rows<T>);
}

// With p = exp(x - z): dx = g (w[t] (1 - smoothing) (p - [k = t]) + smoothing / n (p sum(w) - w)) +
// of_z 2 lse_square_scale z p, times the derivative of the cap; g and of_z are grad times the weight of the token, each
// divided by its divisor.
template <class T>
void cross_entropy_backward(const CrossEntropyBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const C softcap = static_cast<C>(a.softcap), smoothing = static_cast<C>(a.label_smoothing);
  const C *w = static_cast<const C*>(a.weight), *u = static_cast<const C*>(a.token_weight);
  const C *grad = static_cast<const C*>(a.grad), *divisors = static_cast<const C*>(a.divisors);
  const C weights = smoothing > 0 && w != nullptr ? sum<C>(n, [&](auto at) { return get(w, at); }) : C(n);
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(a.x) + i * a.x_stride;
    T* d = static_cast<T*>(a.dx) + i * n;
    const int64_t target = a.target[i];
    if (target == a.ignore_index) {
      for_vectors<C>(n, [&](auto at) { put(d, at, Vector<C>{}); });
      continue;
    }
    const C z = static_cast<const C*>(a.lse)[i], z_rest = static_cast<const C*>(a.lse_rest)[i];
    C g = (grad == nullptr ? C(1) : grad[a.grad_per_row ? i : 0]) * (u == nullptr ? C(1) : u[i]), of_z = g;
    if (divisors != nullptr) g /= divisors[0], of_z /= divisors[1];
    const C own_weight = w == nullptr ? C(1) : w[target], chosen = own_weight * (C(1) - smoothing);
    const C of_others = g * (smoothing / C(n) * weights) + of_z * C(2) * static_cast<C>(a.lse_square_scale) * z;
    const C of_p = g * chosen + of_others, shift = g * (smoothing / C(n));
    const auto log_p = [&](auto value) { return (capped(value, softcap) - z) - z_rest; };
    const auto gradient = [&](auto value, auto weight) {
      auto result = of_p * exp_of_negative(log_p(value)) - shift * weight;
      if (softcap > 0) result *= cap_slope(value, softcap);
      return result;
    };
    // The target's own, where p - 1 is expm1(log(p)): a difference would leave nothing where the target is nearly
    // certain. It is read first, because dx may be where x is.
    const Vector<C> own_logit = Vector<C>{} + static_cast<C>(widen(x[target]));
    const double own_log_p = log_p(own_logit)[0];
    const C less_one = static_cast<C>(__builtin_expm1(own_log_p)), own_p = static_cast<C>(__builtin_exp(own_log_p));
    const C slope = softcap > 0 ? cap_slope(own_logit, softcap)[0] : C(1);
    const C own = (g * chosen * less_one + of_others * own_p - shift * own_weight) * slope;
    for_vectors<C>(n, [&](auto at) {
      const auto weight = w == nullptr ? Vector<C>{} + C(1) : get(w, at);
      put(d, at, gradient(get(x, at), weight));
    });
    d[target] = narrow<T>(own);
  }
}
