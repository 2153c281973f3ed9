// softmax over rows: exp(x - max(x)) / sum(exp(x - max(x))). Included by kernels.inc.h.

template <class T>
void softmax(const Softmax& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const bool has_buffer = a.stream || !kIs<T, C>;
  Buffer<C> buffer(has_buffer ? n : 0);
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(a.x) + i * a.x_stride;
    T* y = static_cast<T*>(a.y) + i * n;
    const T* next = next_of_one(x, a.x_stride, n, i + 1 == end);
    C* exps = buffer.data;  // in the result, where it can hold them and is in the cache
    if constexpr (kIs<T, C>) exps = has_buffer ? exps : y;
    const C top = maximum<C>(n, -static_cast<C>(__builtin_inf()), [&](auto at) { return get(x, at); });
    const C total = sum<C>(n, [&](auto at) {
      prefetch(next, at);
      const auto value = exp_of_negative_for<T>(get(x, at) - top);
      put(exps, at, value);
      return value;
    });
    const C factor = C(1) / total;
    for_vectors<C>(n, [&](auto at) { put(y, at, get(exps, at) * factor, a.stream); });
  }
}

// dx = y * (grad - sum(grad * y) / sum(y)): sum(y) is 1, but for what y is rounded by, which would be all that is left
// where one element has nearly all of the weight.
template <class T>
void softmax_backward(const SoftmaxBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  for (int64_t i = begin; i < end; ++i) {
    const T* y = static_cast<const T*>(a.y) + i * a.y_stride;
    const T* g = static_cast<const T*>(a.grad) + i * a.grad_stride;
    T* d = static_cast<T*>(a.dx) + i * n;
    const C total = sum<C>(n, [&](auto at) { return get(y, at); });
    const C mean = sum<C>(n, [&](auto at) { return get(g, at) * get(y, at); }) / total;
    const bool is_last = i + 1 == end;
    const T *next = next_row(y, a.y_stride, is_last), *next_gradients = next_row(g, a.grad_stride, is_last);
    for_vectors<C>(n, [&](auto at) {
      prefetch(next, at);
      prefetch(next_gradients, at);
      put(d, at, get(y, at) * (get(g, at) - mean), a.stream);
    });
  }
}
