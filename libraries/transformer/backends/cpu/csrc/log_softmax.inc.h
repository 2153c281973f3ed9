// The logarithm of softmax over rows: x - max(x) - log(sum(exp(x - max(x)))). Included by kernels.inc.h.

template <class T>
void log_softmax(const LogSoftmax& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(a.x) + i * a.x_stride;
    const C top = maximum<C>(n, -static_cast<C>(__builtin_inf()), [&](auto at) { return get(x, at); });
    const C total = sum<C>(n, [&](auto at) { return exp_of_negative(get(x, at) - top); });
    C log_total = static_cast<C>(__builtin_log(static_cast<double>(total)));
    if (total < 2) {  // one element has most of the weight, and its logarithm is the sum of the others
      const C others = sum<C>(n, [&](auto at) {
        const auto below = get(x, at) - top;
        return below < 0 ? exp_of_negative(below) : Vector<C>{};
      });
      log_total = static_cast<C>(__builtin_log1p(static_cast<double>(others)));
    }
    T* y = static_cast<T*>(a.y) + i * n;
    const T* next = next_of_one(x, a.x_stride, n, i + 1 == end);
    for_vectors<C>(n, [&](auto at) {
      prefetch(next, at);
      put(y, at, (get(x, at) - top) - log_total, a.stream);
    });
  }
}

// dx = grad - exp(y) * sum(grad).
template <class T>
void log_softmax_backward(const LogSoftmaxBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  for (int64_t i = begin; i < end; ++i) {
    const T* y = static_cast<const T*>(a.y) + i * a.y_stride;
    const T* g = static_cast<const T*>(a.grad) + i * a.grad_stride;
    T* d = static_cast<T*>(a.dx) + i * n;
    const C total = sum<C>(n, [&](auto at) { return get(g, at); });
    const bool is_last = i + 1 == end;
    const T *next = next_row(y, a.y_stride, is_last), *next_gradients = next_row(g, a.grad_stride, is_last);
    for_vectors<C>(n, [&](auto at) {
      prefetch(next, at);
      prefetch(next_gradients, at);
      put(d, at, get(g, at) - exp_of_negative(get(y, at)) * total, a.stream);
    });
  }
}
