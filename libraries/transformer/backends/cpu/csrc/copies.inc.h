// Copies of what does not lie in memory as rows do, and back. Included by kernels.inc.h.

// Columns of matrices to rows: a square of both at a time.
template <class T>
void transposed(const Transposed& a, int64_t begin, int64_t end) {
  constexpr int64_t kMost = kLanes<ComputeType<T>>;
  const auto at_most = [](int64_t most, int64_t count) { return count < most ? count : most; };
  Columns<T> square;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t matrix = block / a.blocks(), first = block % a.blocks() * kRowsOfTransposed;
    const int64_t last = first + at_most(kRowsOfTransposed, a.rows - first);
    const T* x = static_cast<const T*>(a.x) + matrix * a.x_step;
    T* y = static_cast<T*>(a.y) + matrix * a.y_step;
    for (int64_t k = 0; k < a.columns; k += kMost) {
      const int64_t columns = at_most(kMost, a.columns - k);
      for (int64_t i = first; i < last; i += kMost) {
        const int64_t rows = at_most(kMost, last - i);
        square.read(x + k * a.x_stride + i, a.x_stride, columns, rows);
        for (int64_t r = 0; r < rows; ++r) {
          T* to = y + (i + r) * a.y_stride + k;
          columns == kMost ? put(to, Whole{0}, square.values[r]) : put(to, Some{0, columns}, square.values[r]);
        }
      }
    }
  }
}

// n elements that are `step` apart. Every other one is taken from two vectors, which must not reach beyond the last
// one.
template <class T>
inline void copy_steps(const T* x, int64_t step, T* y, int64_t n) {
  constexpr int64_t kMost = kLanes<ComputeType<T>>;
  const auto even = [](int64_t i) { return 2 * i; };
  int64_t k = 0;
  for (; step == 2 && k + kMost < n; k += kMost) {
    put(y, Whole{k}, shuffled(get(x, Whole{2 * k}), get(x, Whole{2 * k + kMost}), even));
  }
  for (; k < n; ++k) y[k] = x[k * step];
}
// Rows without gaps between them, as those of x[..., ::2], are one: most of a short row is the end of it.
template <class T>
void stepped(const Stepped& a, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(a.x) + begin * a.x_stride;
  T* y = static_cast<T*>(a.y) + begin * a.length;
  if (a.x_stride == a.length * a.x_step) return copy_steps(x, a.x_step, y, (end - begin) * a.length);
  for (int64_t i = begin; i < end; ++i, x += a.x_stride, y += a.length) copy_steps(x, a.x_step, y, a.length);
}
