// What fused_linear_cross_entropy does with its gradients. Included by kernels.inc.h.

template <class T, class X>
void scaled_rows(const Scaled& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const C factor = *static_cast<const C*>(a.factor);
  for (int64_t i = begin; i < end; ++i) {
    const X* x = static_cast<const X*>(a.x) + i * a.x_stride;
    T* y = static_cast<T*>(a.y) + i * a.length;
    for_vectors<C>(a.length, [&](auto at) { put(y, at, get(x, at) * factor); });
  }
}
template <class T>
void scaled(const Scaled& a, int64_t begin, int64_t end) {
  a.x_is_wide ? scaled_rows<T, ComputeType<T>>(a, begin, end) : scaled_rows<T, T>(a, begin, end);
}

// Elements begin <= k < end.
template <class T>
void accumulate(const Accumulate& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const T* x = static_cast<const T*>(a.x) + begin;
  C* sum = static_cast<C*>(a.sum) + begin;
  for_vectors<C>(end - begin, [&](auto at) { put(sum, at, a.adds ? get(sum, at) + get(x, at) : get(x, at)); });
}

// Columns begin <= k < end, a few at a time; sums of kSummed rows one after the other, as those of linear.
template <class T>
void column_sums(const ColumnSums& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  constexpr int64_t kColumns = 512;
  for (int64_t first = begin; first < end; first += kColumns) {
    const int64_t count = end - first < kColumns ? end - first : kColumns;
    C* const sums = static_cast<C*>(a.sums) + first;
    if (!a.adds) fill_zero(sums, count);
    for (int64_t from = 0; from < a.rows; from += kSummed) {
      C some[kColumns];
      fill_zero(some, count);
      for (int64_t i = from; i < a.rows && i < from + kSummed; ++i) {
        const T* const x = static_cast<const T*>(a.x) + i * a.length + first;
        for_vectors<C>(count, [&](auto at) { put(some, at, get(some, at) + get(x, at)); });
      }
      add_sums(some, count, sums, false);
    }
  }
}
