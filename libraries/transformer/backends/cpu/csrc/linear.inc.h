// The products of a linear layer and of its gradients. Included by kernels.inc.h.
//
// Each number is the sum of its products from the first to the last, kSummed of them one after the other, and then the
// sums of these one after the other. Nothing of that depends on what else is computed: a row has the same result, to
// the bit, alone and among others, whatever blocks and threads the product is divided into.

constexpr int64_t kSummed = 256;

// `depth` elements of each of `count` rows, in C, from k on: where they are, or a copy if they are far apart or narrow.
template <class T, class C>
inline Left<C> left_of(const LinearProduct& a, int64_t row, int64_t count, int64_t from, int64_t depth, C* copy) {
  const T* const data = static_cast<const T*>(a.left) + row * a.left_row + from * a.left_column;
  if (a.left_column != 1) {
    for (int64_t k = 0; k < depth; ++k) {
      for_vectors<C>(count, [&](auto at) { put(copy + k * a.height, at, get(data + k * a.left_column, at)); });
    }
    return {copy, 1, a.height};
  }
  if constexpr (kIs<T, C>) {
    return {data, a.left_row, 1};
  } else {
    for (int64_t i = 0; i < count; ++i) {
      for_vectors<C>(depth, [&](auto at) { put(copy + i * kSummed, at, get(data + i * a.left_row, at)); });
    }
    return {copy, kSummed, 1};
  }
}

// A panel of `columns` columns of the product from `column` on, `depth` rows of it from k on.
template <class T, class C>
inline void pack_right(const LinearProduct& a, int64_t column, int64_t columns, int64_t from, int64_t depth, C* panel) {
  const T* const data = static_cast<const T*>(a.right);
  const Panels<C> to{panel, depth, kPanel<C>};
  if (a.right_is_by_depth) {
    pack(HeadRows<const T>(data + from * a.right_stride + column, a.right_stride), 0, depth, columns, to);
  } else {
    pack_transposed(HeadRows<const T>(data + column * a.right_stride + from, a.right_stride), 0, columns, depth, to);
  }
}

// Adds sums of kSummed products to what is there, unless they are the first ones.
template <class C>
inline void add_sums(const C* more, int64_t columns, C* sums, bool is_first) {
  for_vectors<C>(columns, [&](auto at) { put(sums, at, is_first ? get(more, at) : get(sums, at) + get(more, at)); });
}

// The products of `height` rows with a panel.
template <int64_t height, class C>
inline void add_tile(Left<C> left, const C* panel, int64_t columns, int64_t depth, C* sums, int64_t stride,
                     bool is_first) {
  C tile[height * kPanel<C>];
  columns > kLanes<C> ? multiply_tile<2, height>(left, panel, kPanel<C>, depth, tile, kPanel<C>, false)
                      : multiply_tile<1, height>(left, panel, kPanel<C>, depth, tile, kPanel<C>, false);
  for (int64_t i = 0; i < height; ++i) add_sums(tile + i * kPanel<C>, columns, sums + i * stride, is_first);
}

// The same of any number of rows.
template <int64_t height = kTile, class C>
inline void add_rows(Left<C> left, int64_t rows, const C* panel, int64_t columns, int64_t depth, C* sums,
                     int64_t stride, bool is_first) {
  while (rows >= height) {
    add_tile<height>(left, panel, columns, depth, sums, stride, is_first);
    left.data += height * left.row, sums += height * stride, rows -= height;
  }
  if constexpr (height > 1) {
    if (rows > 0) add_rows<height / 2>(left, rows, panel, columns, depth, sums, stride, is_first);
  }
}

// The products of one row, by the same operations in the same order, without panels in between: with columns that lie
// one after the other ...
template <class T, class C>
inline void add_row_of_columns(const C* left, HeadRows<const T> right, int64_t columns, int64_t depth, C* sums,
                               bool is_first) {
  constexpr int64_t kCount = kLanes<C>;
  for (int64_t first = 0; first < columns; first += kCount) {
    Vector<C> total = {};
    for (int64_t k = 0; k < depth; k += kCount) {
      Vector<C> square[kCount];
      load_transposed<T, C>(right, first, columns, k, depth, square);
      if (k + kCount <= depth) {
#pragma GCC unroll 16
        for (int64_t j = 0; j < kCount; ++j) total += left[k + j] * square[j];
      } else {
        for (int64_t j = 0; j < depth - k; ++j) total += left[k + j] * square[j];
      }
    }
    C some[kCount];
    store_vector(some, total);
    add_sums(some, columns - first < kCount ? columns - first : kCount, sums + first, is_first);
  }
}
// ... and with rows, of which `columns` elements are a multiple of eight registers'.
template <class C>
inline void add_row_of_rows(const C* left, HeadRows<const C> right, int64_t columns, int64_t depth, C* sums,
                            bool is_first) {
  constexpr int64_t kWide = 8 * kLanes<C>;
  for (int64_t first = 0; first < columns; first += kWide) {
    C some[kWide];
    multiply_tile<8, 1>(Left<C>{left, 0, 1}, right.row(0) + first, right.stride, depth, some, kWide, false);
    add_sums(some, kWide, sums + first, is_first);
  }
}

template <class T>
void linear_product(const LinearProduct& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  constexpr C kOne = 1;
  const bool is_copied = a.left != nullptr && (!kIs<T, C> || a.left_column != 1);
  const Buffer<C> sums(a.height * a.width), panel(kSummed * kPanel<C>), copy(is_copied ? a.height * kSummed : 0);
  const int64_t blocks = (a.columns + a.width - 1) / a.width;  // in each row of them
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t row = unit / blocks * a.height, column = unit % blocks * a.width;
    const int64_t rows = a.rows - row < a.height ? a.rows - row : a.height;
    const int64_t columns = a.columns - column < a.width ? a.columns - column : a.width;
    if (a.depth == 0) fill_zero(sums.data, a.height * a.width);
    for (int64_t from = 0; from < a.depth; from += kSummed) {
      const int64_t depth = a.depth - from < kSummed ? a.depth - from : kSummed;
      const Left<C> left = a.left == nullptr ? Left<C>{&kOne, 0, 0} : left_of<T>(a, row, rows, from, depth, copy.data);
      if (a.rows == 1 && left.column == 1 && !a.right_is_by_depth) {
        const HeadRows<const T> right(static_cast<const T*>(a.right) + column * a.right_stride + from, a.right_stride);
        add_row_of_columns(left.data, right, columns, depth, sums.data, from == 0);
        continue;
      }
      if constexpr (kIs<T, C>) {
        if (a.rows == 1 && left.column == 1 && columns % (8 * kLanes<C>) == 0) {
          const HeadRows<const T> right(static_cast<const T*>(a.right) + from * a.right_stride + column,
                                        a.right_stride);
          add_row_of_rows(left.data, right, columns, depth, sums.data, from == 0);
          continue;
        }
      }
      for (int64_t first = 0; first < columns; first += kPanel<C>) {
        const int64_t count = columns - first < kPanel<C> ? columns - first : kPanel<C>;
        pack_right<T>(a, column + first, count, from, depth, panel.data);
        add_rows(left, rows, panel.data, count, depth, sums.data + first, a.width, from == 0);
      }
    }
    const T* const bias = a.bias == nullptr ? nullptr : static_cast<const T*>(a.bias) + column;
    for (int64_t i = 0; i < rows; ++i) {
      T* const out = static_cast<T*>(a.out) + (row + i) * a.columns + column;
      const C* const sum = sums.data + i * a.width;
      for_vectors<C>(columns,
                     [&](auto at) { put(out, at, bias == nullptr ? get(sum, at) : get(sum, at) + get(bias, at)); });
    }
  }
}
