// rms_norm and layer_norm, forward and backward. Included by kernels.inc.h.

// The rows of one group out of `parts`, of which all but the last have the same number.
inline void rows_of_part(int64_t rows, int64_t parts, int64_t part, int64_t& begin, int64_t& end) {
  const int64_t size = (rows + parts - 1) / parts;
  begin = part * size < rows ? part * size : rows;
  end = begin + size < rows ? begin + size : rows;
}

// What normalised rows are multiplied by, offset + weight or 1, in the type that is computed in: made once for many
// rows, where it is not the weight itself.
template <class T>
class Factors {
  using C = ComputeType<T>;

 public:
  Factors(const void* weight, double offset, int64_t n, bool rounds = false)
      : is_weight_(kIs<T, C> && weight != nullptr && offset == 0),
        weight_(static_cast<const C*>(weight)),
        made_(is_weight_ ? 0 : n) {
    if (is_weight_) return;
    for_vectors<C>(n, [&](auto at) {
      Vector<C> value = Vector<C>{} + C(1);
      if (weight != nullptr) value = get(static_cast<const T*>(weight), at) + static_cast<C>(offset);
      put(made_.data, at, rounded_if<T>(rounds, value));
    });
  }
  const C* data() const { return is_weight_ ? weight_ : made_.data; }

 private:
  bool is_weight_;
  const C* weight_;
  Buffer<C> made_;
};

// Of rows of no more elements than a vector has.
template <class T, bool has_residual>
void rms_norm_of_columns(const RmsNorm& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const bool rounds_first = a.casting == Casting::llama && a.weight != nullptr;
  const Factors<T> factors(a.weight, a.offset, n, rounds_first);
  const C* factor = factors.data();
  Columns<T> residuals;
  for_columns<T>(begin, end, [&](int64_t i, int64_t rows, auto& columns) {
    columns.read(static_cast<const T*>(a.x) + i * a.x_stride, a.x_stride, rows, n);
    if constexpr (has_residual) {
      residuals.read(static_cast<const T*>(a.residual) + i * a.residual_stride, a.residual_stride, rows, n);
      for_vectors<C>(Side{n}, [&](auto at) {
        put(&columns, at, rounded<T>(get(&columns, at) + get(&residuals, at)));
        put(&residuals, at, get(&columns, at));
      });
      residuals.write(static_cast<T*>(a.sum) + i * a.sum_stride, a.sum_stride, rows, n);
    }
    const auto squares = sum<C>(Side{n}, [&](auto at) { return get(&columns, at) * get(&columns, at); });
    const auto r = reciprocal_root(squares / C(n), a.eps);
    for_vectors<C>(Side{n}, [&](auto at) {
      put(&columns, at, rounded_if<T>(rounds_first, get(&columns, at) * r) * get(factor, at));
    });
    columns.write(static_cast<T*>(a.y) + i * a.y_stride, a.y_stride, rows, n);
  });
}

// has_residual: the sum of x and a residual is normalised, and kept. It is read again: where it is streamed, from a
// buffer: [4096, 2048] takes 0.86 of the time where memory is read and written, and as long where a cache holds all.
template <class T, bool has_residual>
void rms_norm_rows(const RmsNorm& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const bool rounds_first = a.casting == Casting::llama && a.weight != nullptr;
  if (n <= kLanes<C>) return rms_norm_of_columns<T, has_residual>(a, begin, end);
#if defined(__AVX512F__)
  if constexpr (kIs<T, BFloat16>) {
    if (rounds_first && a.offset == 0 && n % 32 == 0 && has_avx512_bf16()) {
      return rms_norm_bfloat16<has_residual>(a, begin, end);
    }
  }
#endif
  const Factors<T> factors(a.weight, a.offset, n, rounds_first);
  const C* factor = factors.data();
  const Buffer<T> buffer(has_residual && a.stream ? n : 0);
  for (int64_t i = begin; i < end; ++i) {
    const bool is_last = i + 1 == end;
    const T* x = static_cast<const T*>(a.x) + i * a.x_stride;
    const T* next = has_residual ? next_row(x, a.x_stride, is_last) : next_of_one(x, a.x_stride, n, is_last);
    const T* next_residual = nullptr;
    C squares;
    if constexpr (has_residual) {
      const T* residual = static_cast<const T*>(a.residual) + i * a.residual_stride;
      next_residual = next_row(residual, a.residual_stride, is_last);
      T* total = static_cast<T*>(a.sum) + i * a.sum_stride;
      T* again = a.stream ? buffer.data : total;
      squares = sum<C>(n, [&](auto at) {
        const auto value = put_rounded(again, at, get(x, at) + get(residual, at));
        if (a.stream) put(total, at, value, true);
        return value * value;
      });
      x = again;
    } else {
      squares = sum<C>(n, [&](auto at) { return get(x, at) * get(x, at); });
    }
    const C r = reciprocal_root(squares / C(n), a.eps);
    T* y = static_cast<T*>(a.y) + i * a.y_stride;
    for_vectors<C>(n, [&](auto at) {
      prefetch(next, at);
      if constexpr (has_residual) prefetch(next_residual, at);
      put(y, at, rounded_if<T>(rounds_first, get(x, at) * r) * get(factor, at), a.stream);
    });
  }
}

template <class T>
void rms_norm(const RmsNorm& a, int64_t begin, int64_t end) {
  constexpr RowsRead<RmsNorm> read[] = {{&RmsNorm::x, &RmsNorm::x_stride, &RmsNorm::x_step},
                                        {&RmsNorm::residual, &RmsNorm::residual_stride, &RmsNorm::residual_step}};
  for_rows_together<T>(a, begin, end, read, a.residual == nullptr ? rms_norm_rows<T, false> : rms_norm_rows<T, true>);
}

// With m = grad * (offset + weight) and r the reciprocal of the root mean square:
// dx = r * (m - x * r^2 * mean(m * x)), dweight = sum over rows of grad * x * r
template <class T>
void rms_norm_backward(const RmsNormBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const bool rounds_first = a.casting == Casting::llama;
  const Factors<T> factors(a.weight, a.offset, n);
  const C* factor = factors.data();
  for (int64_t part = begin; part < end; ++part) {
    C* sums = a.partial == nullptr ? nullptr : static_cast<C*>(a.partial) + part * n;
    if (sums != nullptr) for_vectors<C>(n, [&](auto at) { put(sums, at, Vector<C>{}); });
    int64_t first, last;
    rows_of_part(a.rows, a.parts, part, first, last);
    for (int64_t i = first; i < last; ++i) {
      const T* x = static_cast<const T*>(a.x) + i * a.x_stride;
      const T* g = static_cast<const T*>(a.grad) + i * a.grad_stride;
      const T* more = a.grad_sum == nullptr ? nullptr : static_cast<const T*>(a.grad_sum) + i * a.grad_sum_stride;
      T* d = static_cast<T*>(a.dx) + i * n;
      const C r = reciprocal_root(sum<C>(n, [&](auto at) { return get(x, at) * get(x, at); }) / C(n), a.eps);
      const C products = sum<C>(n, [&](auto at) { return get(g, at) * get(factor, at) * get(x, at); });
      const C inner = products * r * r / C(n);
      const bool is_last = i + 1 == last;
      const T *next = next_row(x, a.x_stride, is_last), *next_gradients = next_row(g, a.grad_stride, is_last);
      for_vectors<C>(n, [&](auto at) {
        prefetch(next, at);
        prefetch(next_gradients, at);
        const auto values = get(x, at), gradients = get(g, at);
        auto gradient = r * (gradients * get(factor, at) - values * inner);
        if (more != nullptr) gradient += get(more, at);
        put(d, at, gradient, a.stream);
        if (sums != nullptr) put(sums, at, get(sums, at) + gradients * rounded_if<T>(rounds_first, values * r));
      });
    }
  }
}

// A row's first element; 0 of an empty one.
template <class T>
inline ComputeType<T> first_of(const T* x, int64_t n) {
  return get(x, Some{0, n < 1 ? n : 1})[0];
}

// What a row in the cache is normalised by, or N has a lane for each of short rows: its mean; r, which is 1 /
// sqrt(variance + eps), and nan where the squares overflow; and what the mean is rounded by, times -r. Made from the
// first element and the sum of the distances from it: that of the elements would be rounded to the last digit of an
// offset that they have in common.
template <class C, class N>
struct Moments {
  N mean, r, shift;

  template <class X, class Count>
  Moments(const X* x, Count n, C count, N first, N distances, double eps) : mean(first + distances / count) {
    const auto [sum, squares] = sum_and_squares<C>(n, [&](auto at) { return get(x, at) - mean; });
    const N rest = sum / count, variance = squares / count - rest * rest;
    const auto overflows = variance == static_cast<C>(__builtin_inf());
    r = reciprocal_root(variance < 0 ? N{} : variance, eps);
    r = overflows ? N{} + static_cast<C>(__builtin_nan("")) : r;
    shift = -rest * r;
  }
  Vector<C> normalised(Vector<C> values) const { return (values - mean) * r + shift; }
};

// Of rows of no more elements than a vector has.
template <class T>
void layer_norm_of_columns(const LayerNorm& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const Factors<T> factors(a.weight, 0, n);
  const C* factor = factors.data();
  const T* bias = static_cast<const T*>(a.bias);
  for_columns<T>(begin, end, [&](int64_t i, int64_t rows, auto& columns) {
    columns.read(static_cast<const T*>(a.x) + i * a.x_stride, a.x_stride, rows, n);
    const auto first = columns.values[0];
    const auto distances = sum<C>(Side{n}, [&](auto at) { return get(&columns, at) - first; });
    const Moments<C, Vector<C>> row(&columns, Side{n}, C(n), first, distances, a.eps);
    for_vectors<C>(Side{n}, [&](auto at) {
      auto value = row.normalised(get(&columns, at)) * get(factor, at);
      if (bias != nullptr) value += get(bias, at);
      put(&columns, at, value);
    });
    columns.write(static_cast<T*>(a.y) + i * n, n, rows, n);
  });
}

template <class T>
void layer_norm_rows(const LayerNorm& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  if (n <= kLanes<C>) return layer_norm_of_columns<T>(a, begin, end);
  const Factors<T> factors(a.weight, 0, n);
  const C* factor = factors.data();
  const T* bias = static_cast<const T*>(a.bias);
  const T* x = static_cast<const T*>(a.x) + begin * a.x_stride;
  C first = first_of(x, n);
  C distances = sum<C>(n, [&](auto at) { return get(x, at) - first; });
  for (int64_t i = begin; i < end; ++i) {
    const bool is_last = i + 1 == end;
    T* y = static_cast<T*>(a.y) + i * n;
    const T* next = next_row(x, a.x_stride, is_last);
    const T* soon = next_of_one(x, a.x_stride, n, is_last);
    const Moments<C, C> row(x, n, C(n), first, distances, a.eps);
    first = first_of(next, n);
    // The next row's sum, too: memory is read while this row is written.
    distances = sum<C>(n, [&](auto at) {
      prefetch(soon, at);
      auto value = row.normalised(get(x, at)) * get(factor, at);
      if (bias != nullptr) value += get(bias, at);
      put(y, at, value, a.stream);
      return get(next, at) - first;
    });
    x = next;
  }
}

template <class T>
void layer_norm(const LayerNorm& a, int64_t begin, int64_t end) {
  constexpr RowsRead<LayerNorm> read[] = {{&LayerNorm::x, &LayerNorm::x_stride, &LayerNorm::x_step}};
  for_rows_together<T>(a, begin, end, read, layer_norm_rows<T>);
}

// With h = (x - mean) * r and m = grad * weight: dx = r * (m - mean(m) - h * mean(m * h)), dweight = sum over rows of
// grad * h, dbias = sum over rows of grad
template <class T>
void layer_norm_backward(const LayerNormBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const Factors<T> factors(a.weight, 0, n);
  const C* factor = factors.data();
  for (int64_t part = begin; part < end; ++part) {
    C* sums = static_cast<C*>(a.partial) + part * n;
    C* bias_sums = static_cast<C*>(a.partial_bias) + part * n;
    for_vectors<C>(n, [&](auto at) {
      put(sums, at, Vector<C>{});
      put(bias_sums, at, Vector<C>{});
    });
    int64_t first, last;
    rows_of_part(a.rows, a.parts, part, first, last);
    for (int64_t i = first; i < last; ++i) {
      const T* x = static_cast<const T*>(a.x) + i * a.x_stride;
      const T* g = static_cast<const T*>(a.grad) + i * a.grad_stride;
      T* d = static_cast<T*>(a.dx) + i * n;
      const C from = first_of(x, n);
      const C distances = sum<C>(n, [&](auto at) { return get(x, at) - from; });
      const Moments<C, C> row(x, n, C(n), from, distances, a.eps);
      const C gradients = sum<C>(n, [&](auto at) { return get(g, at) * get(factor, at); }) / C(n);
      const C inner =
          sum<C>(n, [&](auto at) { return get(g, at) * get(factor, at) * row.normalised(get(x, at)); }) / C(n);
      const bool is_last = i + 1 == last;
      const T *next = next_row(x, a.x_stride, is_last), *next_gradients = next_row(g, a.grad_stride, is_last);
      for_vectors<C>(n, [&](auto at) {
        prefetch(next, at);
        prefetch(next_gradients, at);
        const auto normalised = row.normalised(get(x, at)), gradient = get(g, at);
        put(d, at, row.r * (gradient * get(factor, at) - gradients - normalised * inner), a.stream);
        put(sums, at, get(sums, at) + gradient * normalised);
        put(bias_sums, at, get(bias_sums, at) + gradient);
      });
    }
  }
}

// The sums of columns begin <= k < end, of one vector or of both.
template <class T>
void sum_parts(const SumParts& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const auto add_up = [&a](const C* partial, void* to, int64_t first, int64_t last) {
    T* const sums = static_cast<T*>(to) + first;
    partial += first;
    for_vectors<C>(last - first, [&](auto at) {
      Vector<C> total{};
      for (int64_t part = 0; part < a.parts; ++part) total += get(partial + part * a.length, at);
      put(sums, at, total);
    });
  };
  const C* const partial = static_cast<const C*>(a.partial);
  const int64_t n = a.length;
  if (begin < n) add_up(partial, a.sums, begin, end < n ? end : n);
  if (end > n) add_up(partial + a.parts * n, a.more_sums, begin > n ? begin - n : 0, end - n);
}
