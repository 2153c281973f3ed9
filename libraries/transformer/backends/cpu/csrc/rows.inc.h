// Tensors seen as rows. Included by arguments.h.

// Whether the dimensions up to `last` are one, of `count` elements that are `stride` apart.
inline bool are_one(const opwheel::TensorInfo& info, int64_t last, int64_t& count, int64_t& stride) {
  count = 1, stride = 0;
  for (int64_t d = last; d >= 0; --d) {
    if (info.sizes[d] == 1) continue;
    if (count == 1) stride = info.strides[d];
    if (info.strides[d] != stride * count) return false;
    count *= info.sizes[d];
  }
  return true;
}

// How rows lie in memory that are the columns of matrices there: elements of a row are `stride` apart, a row follows
// the other, and a matrix is `step` from the next.
struct ColumnsInMemory {
  int64_t matrices = 1, rows = 1, length = 0, step = 0, stride = 0;

  static std::optional<ColumnsInMemory> of(const opwheel::TensorInfo& info) {
    const int64_t last = info.ndim - 1;
    if (last < 1 || info.numel == 0) return std::nullopt;
    ColumnsInMemory found{.length = info.sizes[last], .stride = info.strides[last]};
    int64_t d = last - 1;
    for (; d >= 0 && (info.sizes[d] == 1 || info.strides[d] == found.rows); --d) found.rows *= info.sizes[d];
    if (found.length == 1 || found.rows == 1 || found.stride < found.rows) return std::nullopt;
    if (!are_one(info, d, found.matrices, found.step)) return std::nullopt;
    return found;
  }
};

inline void run_transposed(const Tensor& of, const Transposed& arguments, int64_t matrices) {
  run(device_of(of), dtype_of(of), arguments, matrices * arguments.blocks(), kRowsOfTransposed * arguments.columns);
}

// As opwheel::Rows, but for how it copies: rows that are columns in memory, those of x.t() for example, a square at a
// time, and rows of every other element in vectors.
struct Rows : opwheel::Rows {
  explicit Rows(const Tensor& given) : opwheel::Rows(given, contiguous_rows) {}
  static Rows in_memory_order(const Tensor& given) { return Rows(given, MemoryOrder{}); }
  // Nothing is copied of tensors whose rows are all `stride` apart, and their elements `step`; but long columns are.
  static Rows apart(const Tensor& given) { return Rows(given, Apart{}); }

 private:
  using opwheel::Rows::Rows;

  struct Apart {
    bool are = false;
    int64_t stride = 0, step = 1;

    static Apart of(const Tensor& given) {
      const opwheel::TensorInfo info(given);
      const int64_t last = info.ndim - 1;
      int64_t rows, stride;
      const bool are = are_one(info, last - 1, rows, stride) && (stride != 1 || info.sizes[last] <= kLongestColumns);
      return {are, stride, info.strides[last]};
    }
  };
  Rows(const Tensor& given, Apart apart)
      : opwheel::Rows(given, [&apart](const Tensor& from) {
          apart = Apart::of(from);
          return apart.are ? opwheel::share(from) : contiguous_rows(from);
        }) {
    if (apart.are) stride = apart.stride, step = apart.step;
    if (length == 1 && stride != 1) step = stride;  // read as one row of elements that are apart
  }

  static Tensor contiguous_rows(const Tensor& given) {
    const opwheel::TensorInfo info(given);
    const auto columns = ColumnsInMemory::of(info);
    int64_t rows, stride;
    if (!columns && !are_one(info, info.ndim - 2, rows, stride)) return opwheel::contiguous(given);
    Tensor copy = new_empty_like(given);
    if (!columns) {
      const int64_t length = info.sizes[info.ndim - 1], step = info.strides[info.ndim - 1];
      const Stepped arguments{opwheel::data<void>(given), opwheel::data<void>(copy), length, stride, step};
      run(info.device, dtype_of(given), arguments, rows, length);
      return copy;
    }
    const int64_t step = columns->rows * columns->length;
    run_transposed(given,
                   {opwheel::data<void>(given), opwheel::data<void>(copy), columns->rows, columns->length,
                    columns->stride, columns->length, columns->step, step},
                   columns->matrices);
    return copy;
  }
};

inline Rows rows_to_read(const Tensor& given) { return Rows::apart(given); }

inline void copy_to(const Tensor& to, const Rows& rows) {
  const auto columns = ColumnsInMemory::of(opwheel::TensorInfo(to));
  if (!columns || rows.data() == opwheel::data<void>(to)) return opwheel::copy_to(to, rows.tensor);
  const int64_t step = columns->rows * columns->length;
  run_transposed(to,
                 {rows.data(), opwheel::data<void>(to), columns->length, columns->rows, columns->length,
                  columns->stride, step, columns->step},
                 columns->matrices);
}
