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

// Where a kernel's arguments have rows that it reads.
template <class Arguments>
struct RowsRead {
  const void* Arguments::* data;
  int64_t Arguments::* stride;
  int64_t Arguments::* step;
};
// Calls kernel(arguments, first, last) for all rows begin <= i < end: where elements are apart for a few rows at a
// time, which are copied next to each other.
template <class T, std::size_t count, class Arguments, class Kernel>
void for_rows_together(const Arguments& a, int64_t begin, int64_t end, const RowsRead<Arguments> (&read)[count],
                       const Kernel& kernel) {
  int64_t apart = 0;
  for (const auto& rows : read) apart += a.*rows.step != 1;
  if (apart == 0) return kernel(a, begin, end);
  constexpr int64_t kElements = 4096;
  const int64_t n = a.length, least = n > kLongestColumns ? 1 : kRowsOfTransposed;
  const int64_t fitting = kElements / (n + 1) / least * least, all = end - begin;
  const int64_t some = fitting > least ? fitting : least, most = some < all ? some : all;
  const Buffer<T> buffer(apart * most * n);
  for (int64_t first = begin; first < end; first += most) {
    const int64_t last = end - first < most ? end : first + most;
    Arguments part = a;
    T* to = buffer.data;
    for (const auto& rows : read) {
      const int64_t stride = a.*rows.stride, step = a.*rows.step;
      if (step == 1) continue;
      const T* const from = static_cast<const T*>(a.*rows.data) + first * stride;
      if (stride == 1) {
        const Transposed columns{from, to, last - first, n, step, n, 0, 0};
        transposed<T>(columns, 0, columns.blocks());
      } else {
        stepped<T>(Stepped{from, to, n, stride, step}, 0, last - first);
      }
      part.*rows.data = to - first * n;
      part.*rows.stride = n;
      part.*rows.step = 1;
      to += most * n;
    }
    kernel(part, first, last);
  }
}
