// Products of matrices, a tile at a time: a few rows, and the columns of two registers. The right side is in panels,
// which lie in memory row after row, so that a tile reads one from its beginning to its end, in the first cache. All is
// computed in C; what is beyond a matrix is zero. Included by kernels.inc.h.

template <class C>
constexpr int64_t kPanel = 2 * kLanes<C>;
#if defined(__AVX512F__)
constexpr int64_t kTile = 8;  // rows of a product that are in registers at a time, which are 32 here
#else
constexpr int64_t kTile = 4;
#endif

constexpr int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

template <class C>
inline void fill_zero(C* data, int64_t n) {
  __builtin_memset(data, 0, static_cast<std::size_t>(n) * sizeof(C));
}

// A matrix in panels, of which the last may have one register's columns.
template <class C>
struct Panels {
  C* data;
  int64_t depth, columns;  // rows, and columns with the padding

  C* at(int64_t row, int64_t column) const {
    const int64_t first = column / kPanel<C> * kPanel<C>;
    return data + first * depth + row * width(first) + (column - first);
  }
  int64_t width(int64_t first) const { return columns - first < kPanel<C> ? kLanes<C> : kPanel<C>; }
};

// The left side of a product: element (i, k) is data[i * row + k * column].
template <class C>
struct Left {
  const C* data;
  int64_t row, column;
};

// A few rows of a product, of one panel's first columns, `vectors` registers of them. Panels have rows of `width`.
template <int64_t vectors, int64_t height = kTile, class C>
__attribute__((always_inline)) inline void multiply_tile(Left<C> a, const C* panel, int64_t width, int64_t depth,
                                                         C* out, int64_t stride, bool adds) {
  using V = Vector<C>;
  V sums[height][vectors];
#pragma GCC unroll 8
  for (int64_t i = 0; i < height; ++i) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < vectors; ++v) {
      sums[i][v] = adds ? load_vector<V>(out + i * stride + v * kLanes<C>) : V{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    V b[vectors];
#pragma GCC unroll 8
    for (int64_t v = 0; v < vectors; ++v) b[v] = load_vector<V>(panel + k * width + v * kLanes<C>);
#pragma GCC unroll 8
    for (int64_t i = 0; i < height; ++i) {
      const C factor = a.data[i * a.row + k * a.column];
#pragma GCC unroll 8
      for (int64_t v = 0; v < vectors; ++v) sums[i][v] += factor * b[v];
    }
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < height; ++i) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < vectors; ++v) store_vector(out + i * stride + v * kLanes<C>, sums[i][v]);
  }
}

// Elements of a row from `column` on, zero beyond its end.
template <class T>
inline Vector<ComputeType<T>> get_padded(const T* row, int64_t column, int64_t length) {
  constexpr int64_t kCount = kLanes<ComputeType<T>>;
  if (column + kCount <= length) return get(row, Whole{column});
  return column < length ? get(row, Some{column, length - column}) : Vector<ComputeType<T>>{};
}

// Rows of a matrix or of a head, as they are in memory.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;

  HeadRows(T* data, int64_t stride) : data(data), stride(stride) {}
  HeadRows(const Heads& heads, int64_t batch, int64_t head, int64_t first = 0)
      : data(static_cast<T*>(heads.data) + batch * heads.strides[0] + head * heads.strides[1] +
             first * heads.strides[2]),
        stride(heads.strides[2]) {}
  T* row(int64_t i) const { return data + i * stride; }
};

template <class T, class C>
inline void pack(HeadRows<const T> x, int64_t begin, int64_t end, int64_t length, Panels<C> to) {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t k = 0; k < to.columns; k += kLanes<C>) store_vector(to.at(i, k), get_padded(x.row(i), k, length));
  }
}
#if defined(__AVX512F__)
// Four elements of each of four rows that are four apart.
inline __m512 load_quarter(const float* x, int64_t stride) {
  const __m512 first = _mm512_castps128_ps512(_mm_loadu_ps(x));
  const __m512 second = _mm512_mask_broadcast_f32x4(first, 0x00f0, _mm_loadu_ps(x + 4 * stride));
  const __m512 third = _mm512_mask_broadcast_f32x4(second, 0x0f00, _mm_loadu_ps(x + 8 * stride));
  return _mm512_mask_broadcast_f32x4(third, 0xf000, _mm_loadu_ps(x + 12 * stride));
}
// 16 rows of 16 elements to columns: loads put fours where they belong. It takes less than half of the time of
// transpose().
inline void load_columns(const float* x, int64_t stride, Vector<float> (&columns)[16]) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < 16; k += 4) {
    __m512 rows[4];
#pragma GCC unroll 4
    for (int64_t j = 0; j < 4; ++j) rows[j] = load_quarter(x + j * stride + k, stride);
    const __m512d low = _mm512_castps_pd(_mm512_unpacklo_ps(rows[0], rows[1]));
    const __m512d high = _mm512_castps_pd(_mm512_unpackhi_ps(rows[0], rows[1]));
    const __m512d next_low = _mm512_castps_pd(_mm512_unpacklo_ps(rows[2], rows[3]));
    const __m512d next_high = _mm512_castps_pd(_mm512_unpackhi_ps(rows[2], rows[3]));
    columns[k] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, next_low));
    columns[k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, next_low));
    columns[k + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high, next_high));
    columns[k + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high, next_high));
  }
}
#endif

// The columns of a square of elements, as many as a register has lanes in each direction: of rows from `first` on, of
// which `count` are there, from k on.
template <class T, class C>
__attribute__((always_inline)) inline void load_transposed(HeadRows<const T> x, int64_t first, int64_t count, int64_t k,
                                                           int64_t length, Vector<C> (&square)[kLanes<C>]) {
  constexpr int64_t kCount = kLanes<C>;
#if defined(__AVX512F__)
  if constexpr (kIs<T, float>) {
    if (first + kCount <= count && k + kCount <= length) return load_columns(x.row(first) + k, x.stride, square);
  }
#endif
  for (int64_t j = 0; j < kCount; ++j) {
    square[j] = first + j < count ? get_padded(x.row(first + j), k, length) : Vector<C>{};
  }
  transpose(square);
}
// Rows from `begin` on, to whose panel, as to the last one's, nothing else belongs.
template <class T, class C>
inline void pack_transposed(HeadRows<const T> x, int64_t begin, int64_t end, int64_t length, Panels<C> to) {
  constexpr int64_t kCount = kLanes<C>;
  const int64_t columns = padded(end, kPanel<C>) < to.columns ? padded(end, kPanel<C>) : to.columns;
  for (int64_t first = begin; first < columns; first += kCount) {
    for (int64_t k = 0; k < length; k += kCount) {
      Vector<C> square[kCount];
      load_transposed<T, C>(x, first, end, k, length, square);
      C* const column = to.at(k, first);
      for (int64_t j = 0; j < kCount && k + j < length; ++j) store_vector(column + j * kPanel<C>, square[j]);
    }
  }
}
