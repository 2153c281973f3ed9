// softmax over rows: exp(x - max(x)) / sum(exp(x - max(x))). Included by kernels.inc.h.

// Of a row, or of short rows side by side. The exponentials may be in the result, where that can hold them.
template <class T, class X, class Exps, class Y, class Count>
inline void softmax_of(const X* x, Exps* exps, Y* y, Count n, const T* next, bool stream) {
  using C = ComputeType<T>;
  const auto top = maximum<C>(n, -static_cast<C>(__builtin_inf()), [&](auto at) { return get(x, at); });
  const auto total = sum<C>(n, [&](auto at) {
    prefetch(next, at);
    const auto value = exp_of_negative_for<T>(get(x, at) - top);
    put(exps, at, value);
    return value;
  });
  const auto factor = C(1) / total;
  for_vectors<C>(n, [&](auto at) { put(y, at, get(exps, at) * factor, stream); });
}

template <class T>
void softmax_rows(const Softmax& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const T* const x = static_cast<const T*>(a.x);
  T* const y = static_cast<T*>(a.y);
  if (n <= kLanes<C>) {
    return for_columns<T>(begin, end, [&](int64_t i, int64_t rows, auto& columns) {
      columns.read(x + i * a.x_stride, a.x_stride, rows, n);
      softmax_of<T>(&columns, &columns, &columns, Side{n}, x, false);
      columns.write(y + i * n, n, rows, n);
    });
  }
  const bool has_buffer = a.stream || !kIs<T, C>;
  Buffer<C> buffer(has_buffer ? n : 0);
  for (int64_t i = begin; i < end; ++i) {
    const T* row = x + i * a.x_stride;
    C* exps = buffer.data;  // in the result, where it can hold them and is in the cache
    if constexpr (kIs<T, C>) exps = has_buffer ? exps : y + i * n;
    softmax_of<T>(row, exps, y + i * n, n, next_of_one(row, a.x_stride, n, i + 1 == end), a.stream);
  }
}

template <class T>
void softmax(const Softmax& a, int64_t begin, int64_t end) {
  constexpr RowsRead<Softmax> read[] = {{&Softmax::x, &Softmax::x_stride, &Softmax::x_step}};
  for_rows_together<T>(a, begin, end, read, softmax_rows<T>);
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
