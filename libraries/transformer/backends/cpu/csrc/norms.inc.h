// rms_norm and layer_norm, forward and backward. Included by kernels.inc.h.

// The rows of one group out of `parts`, of which all but the last have the same number.
inline void rows_of_part(int64_t rows, int64_t parts, int64_t part, int64_t& begin, int64_t& end) {
  const int64_t size = (rows + parts - 1) / parts;
  begin = part * size < rows ? part * size : rows;
  end = begin + size < rows ? begin + size : rows;
}

// 1 / sqrt(mean(x^2) + eps)
template <class C>
inline C reciprocal_rms(const C* x, int64_t n, double eps) {
  const C squares = sum<C>(n, [&](int64_t k) { return x[k] * x[k]; });
  return C(1) / static_cast<C>(__builtin_sqrt(static_cast<double>(squares / C(n)) + eps));
}

// What a normalised row is multiplied by: offset + weight, or 1.
template <class T>
inline void load_factor(ComputeType<T>* factor, const void* weight, double offset, int64_t n) {
  using C = ComputeType<T>;
  if (weight == nullptr) {
    for (int64_t k = 0; k < n; ++k) factor[k] = C(1);
    return;
  }
  const C* w = load(static_cast<const T*>(weight), factor, n);
  const C shift = static_cast<C>(offset);
  OPWHEEL_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) factor[k] = shift + w[k];
}

template <class T>
void rms_norm(const RmsNorm& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  Buffer<C> x_buffer(n), y_buffer(n), f_buffer(n);
  C* factor = f_buffer.data;
  load_factor<T>(factor, a.weight, a.offset, n);
  const bool rounds_first = a.casting == Casting::llama && a.weight != nullptr;
  if (rounds_first) round_to<T>(factor, n);
  for (int64_t i = begin; i < end; ++i) {
    const C* x = load(static_cast<const T*>(a.x) + i * a.x_stride, x_buffer.data, n);
    if (a.residual != nullptr) {
      const C* r = load(static_cast<const T*>(a.residual) + i * a.residual_stride, y_buffer.data, n);
      T* kept = static_cast<T*>(a.sum) + i * a.sum_stride;
      C* total = place(kept, x_buffer.data);
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) total[k] = x[k] + r[k];
      round_to<T>(total, n);
      store(kept, total, n);
      x = total;
    }
    const C r = reciprocal_rms(x, n, a.eps);
    T* row = static_cast<T*>(a.y) + i * a.y_stride;
    C* y = place(row, y_buffer.data);
    if (rounds_first && !kIs<T, C>) {
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] = x[k] * r;
      round_to<T>(y, n);
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] *= factor[k];
    } else {
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] = x[k] * r * factor[k];
    }
    store(row, y, n);
  }
}

// With m = grad * (offset + weight) and r the reciprocal of the root mean square:
// dx = r * (m - x * r^2 * mean(m * x)), dweight = sum over rows of grad * x * r
template <class T>
void rms_norm_backward(const RmsNormBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  Buffer<C> x_buffer(n), g_buffer(n), f_buffer(n), d_buffer(n), s_buffer(n);
  C* factor = f_buffer.data;
  load_factor<T>(factor, a.weight, a.offset, n);
  for (int64_t part = begin; part < end; ++part) {
    C* sums = a.partial == nullptr ? nullptr : static_cast<C*>(a.partial) + part * n;
    if (sums != nullptr) {
      for (int64_t k = 0; k < n; ++k) sums[k] = C(0);
    }
    int64_t first, last;
    rows_of_part(a.rows, a.parts, part, first, last);
    for (int64_t i = first; i < last; ++i) {
      const C* x = load(static_cast<const T*>(a.x) + i * a.x_stride, x_buffer.data, n);
      const C* g = load(static_cast<const T*>(a.grad) + i * a.grad_stride, g_buffer.data, n);
      const C r = reciprocal_rms(x, n, a.eps);
      const C inner = sum<C>(n, [&](int64_t k) { return g[k] * factor[k] * x[k]; }) * r * r / C(n);
      T* row = static_cast<T*>(a.dx) + i * n;
      C* d = place(row, d_buffer.data);
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) d[k] = r * (g[k] * factor[k] - x[k] * inner);
      if (a.grad_sum != nullptr) {
        const C* s = load(static_cast<const T*>(a.grad_sum) + i * a.grad_sum_stride, s_buffer.data, n);
        OPWHEEL_INDEPENDENT
        for (int64_t k = 0; k < n; ++k) d[k] += s[k];
      }
      store(row, d, n);
      if (sums == nullptr) continue;
      if (a.casting == Casting::llama && !kIs<T, C>) {
        C* normalised = s_buffer.data;
        OPWHEEL_INDEPENDENT
        for (int64_t k = 0; k < n; ++k) normalised[k] = x[k] * r;
        round_to<T>(normalised, n);
        OPWHEEL_INDEPENDENT
        for (int64_t k = 0; k < n; ++k) sums[k] += g[k] * normalised[k];
      } else {
        OPWHEEL_INDEPENDENT
        for (int64_t k = 0; k < n; ++k) sums[k] += g[k] * x[k] * r;
      }
    }
  }
}

// Mean, and 1 / sqrt(variance + eps), in two passes: the row is in the cache.
template <class C>
inline void moments(const C* x, int64_t n, double eps, C& mean, C& rstd) {
  mean = sum<C>(n, [&](int64_t k) { return x[k]; }) / C(n);
  const C m = mean;
  const C squares = sum<C>(n, [&](int64_t k) { return (x[k] - m) * (x[k] - m); });
  rstd = C(1) / static_cast<C>(__builtin_sqrt(static_cast<double>(squares / C(n)) + eps));
}

template <class T>
void layer_norm(const LayerNorm& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  Buffer<C> x_buffer(n), y_buffer(n), f_buffer(n), b_buffer(n);
  const C *factor = f_buffer.data, *b = nullptr;
  load_factor<T>(f_buffer.data, a.weight, 0, n);
  if (a.bias != nullptr) b = load(static_cast<const T*>(a.bias), b_buffer.data, n);
  for (int64_t i = begin; i < end; ++i) {
    const C* x = load(static_cast<const T*>(a.x) + i * a.x_stride, x_buffer.data, n);
    C mean, r;
    moments(x, n, a.eps, mean, r);
    T* row = static_cast<T*>(a.y) + i * n;
    C* y = place(row, y_buffer.data);
    if (b != nullptr) {
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] = (x[k] - mean) * r * factor[k] + b[k];
    } else {
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] = (x[k] - mean) * r * factor[k];
    }
    store(row, y, n);
  }
}

// With h = (x - mean) * r and m = grad * weight: dx = r * (m - mean(m) - h * mean(m * h)), dweight = sum over rows of
// grad * h, dbias = sum over rows of grad
template <class T>
void layer_norm_backward(const LayerNormBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  Buffer<C> x_buffer(n), g_buffer(n), f_buffer(n), d_buffer(n);
  const C* factor = f_buffer.data;
  load_factor<T>(f_buffer.data, a.weight, 0, n);
  for (int64_t part = begin; part < end; ++part) {
    C* sums = static_cast<C*>(a.partial) + part * n;
    C* bias_sums = static_cast<C*>(a.partial_bias) + part * n;
    for (int64_t k = 0; k < n; ++k) sums[k] = C(0);
    for (int64_t k = 0; k < n; ++k) bias_sums[k] = C(0);
    int64_t first, last;
    rows_of_part(a.rows, a.parts, part, first, last);
    for (int64_t i = first; i < last; ++i) {
      const C* x = load(static_cast<const T*>(a.x) + i * a.x_stride, x_buffer.data, n);
      const C* g = load(static_cast<const T*>(a.grad) + i * a.grad_stride, g_buffer.data, n);
      C mean, r;
      moments(x, n, a.eps, mean, r);
      const C gradients = sum<C>(n, [&](int64_t k) { return g[k] * factor[k]; }) / C(n);
      const C inner = sum<C>(n, [&](int64_t k) { return g[k] * factor[k] * (x[k] - mean); }) * r * r / C(n);
      T* row = static_cast<T*>(a.dx) + i * n;
      C* d = place(row, d_buffer.data);
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) d[k] = r * (g[k] * factor[k] - gradients - (x[k] - mean) * inner);
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) sums[k] += g[k] * (x[k] - mean) * r;
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) bias_sums[k] += g[k];
      store(row, d, n);
    }
  }
}

template <class T>
void sum_parts(const SumParts& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const C* partial = static_cast<const C*>(a.partial);
  for (int64_t k = begin; k < end; ++k) {
    C total = C(0);
    for (int64_t part = 0; part < a.parts; ++part) total += partial[part * a.length + k];
    static_cast<T*>(a.sums)[k] = narrow<T>(total);
  }
}
