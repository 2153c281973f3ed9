// The logarithm of softmax over rows: x - max(x) - log(sum(exp(x - max(x)))). Included by kernels.inc.h.

template <class T>
void log_softmax_rows(const LogSoftmax& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length, stride = a.x_stride, most = rows_at_a_time<C>(n);
  const bool stream = a.stream;
  const T* const x = static_cast<const T*>(a.x);
  T* const y = static_cast<T*>(a.y);
  if (n <= kLanes<C>) {
    return for_columns<T>(begin, end, [&](int64_t i, int64_t rows, auto& columns) {
      columns.read(x + i * stride, stride, rows, n);
      const auto found = log_sums<C>(Side{n}, [&](auto at) { return get(&columns, at); });
      const auto log_total = log1p(found.beside);
      for_vectors<C>(Side{n}, [&](auto at) { put(&columns, at, (get(&columns, at) - found.top) - log_total); });
      columns.write(y + i * n, n, rows, n);
    });
  }
  for (int64_t i = begin; i < end; i += most) {
    const int64_t rows = end - i < most ? end - i : most;
    const T* const first = x + i * stride;
    const auto value = [&](int64_t r, auto at) { return get(first + r * stride, at); };
    const auto same = [](auto values) { return values; };
    const auto found = log_sums<C>(rows, n, value, same, [](int64_t) { return false; });
    const auto log_totals = log1p(found.beside);
    for (int64_t r = 0; r < rows; ++r) {
      const C top = found.top[r], log_total = log_totals[r];
      const T *row = first + r * stride, *next = next_of_one(row, stride, n, i + r + 1 == end);
      T* const result = y + (i + r) * n;
      for_vectors<C>(n, [&](auto at) {
        prefetch(next, at);
        put(result, at, (get(row, at) - top) - log_total, stream);
      });
    }
  }
}

template <class T>
void log_softmax(const LogSoftmax& a, int64_t begin, int64_t end) {
  constexpr RowsRead<LogSoftmax> read[] = {{&LogSoftmax::x, &LogSoftmax::x_stride, &LogSoftmax::x_step}};
  for_rows_together<T>(a, begin, end, read, log_softmax_rows<T>);
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
