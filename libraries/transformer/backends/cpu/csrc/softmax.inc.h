// softmax over rows: exp(x - max(x)) / sum(exp(x - max(x))). Included by kernels.inc.h.

template <class T>
void softmax(const Softmax& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  Buffer<C> x_buffer(n), y_buffer(n);
  for (int64_t i = begin; i < end; ++i) {
    const C* x = load(static_cast<const T*>(a.x) + i * a.x_stride, x_buffer.data, n);
    const C top = maximum<C>(n, -static_cast<C>(__builtin_inf()), [&](int64_t k) { return x[k]; });
    T* row = static_cast<T*>(a.y) + i * n;
    C* y = place(row, y_buffer.data);
    const C total = sum<C>(n, [&](int64_t k) { return y[k] = exp_of_negative(x[k] - top); });
    const C factor = C(1) / total;
    OPWHEEL_INDEPENDENT
    for (int64_t k = 0; k < n; ++k) y[k] *= factor;
    store(row, y, n);
  }
}

// dx = y * (grad - sum(grad * y))
template <class T>
void softmax_backward(const SoftmaxBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  Buffer<C> y_buffer(n), g_buffer(n);
  for (int64_t i = begin; i < end; ++i) {
    const C* y = load(static_cast<const T*>(a.y) + i * a.y_stride, y_buffer.data, n);
    const C* g = load(static_cast<const T*>(a.grad) + i * a.grad_stride, g_buffer.data, n);
    const C inner = sum<C>(n, [&](int64_t k) { return g[k] * y[k]; });
    T* row = static_cast<T*>(a.dx) + i * n;
    C* d = place(row, g_buffer.data);
    OPWHEEL_INDEPENDENT
    for (int64_t k = 0; k < n; ++k) d[k] = y[k] * (g[k] - inner);
    store(row, d, n);
  }
}
