// Tensors seen as rows. Included by arguments.h.

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
    for (; d >= 0; --d) {
      if (info.sizes[d] == 1) continue;
      if (found.matrices == 1) found.step = info.strides[d];
      if (info.strides[d] != found.step * found.matrices) return std::nullopt;
      found.matrices *= info.sizes[d];
    }
    return found;
  }
};

inline void run_transposed(const Tensor& of, const Transposed& arguments, int64_t matrices) {
  run(device_of(of), dtype_of(of), arguments, matrices * arguments.blocks(), kRowsOfTransposed * arguments.columns);
}

// As opwheel::Rows, but for how it copies: rows that are columns in memory, those of x.t() for example, a square at a
// time, and not an element.
struct Rows : opwheel::Rows {
  explicit Rows(const Tensor& given) : opwheel::Rows(given, contiguous_rows) {}
  static Rows in_memory_order(const Tensor& given) { return Rows(given, MemoryOrder{}); }

  void copy_to(const Tensor& given) const {
    const auto columns = ColumnsInMemory::of(opwheel::TensorInfo(given));
    if (!columns || data() == opwheel::data<void>(given)) return opwheel::copy_to(given, tensor);
    const int64_t step = columns->rows * columns->length;
    run_transposed(given,
                   {data(), opwheel::data<void>(given), columns->length, columns->rows, columns->length,
                    columns->stride, step, columns->step},
                   columns->matrices);
  }

 private:
  using opwheel::Rows::Rows;

  static Tensor contiguous_rows(const Tensor& given) {
    const auto columns = ColumnsInMemory::of(opwheel::TensorInfo(given));
    if (!columns) return opwheel::contiguous(given);
    Tensor copy = new_empty_like(given);
    const int64_t step = columns->rows * columns->length;
    run_transposed(given,
                   {opwheel::data<void>(given), opwheel::data<void>(copy), columns->rows, columns->length,
                    columns->stride, columns->length, columns->step, step},
                   columns->matrices);
    return copy;
  }
};
