// What several operators check and prepare alike. Included, as the others beside it, inside the namespace of a backend,
// which has what differs between devices: on_device(), Rows, rows_to_read(), run(), should_stream(), part_count(),
// check_targets() and check_positions().

// x, and its last size.
inline int64_t check_rows(const Tensor& x, std::string_view name) {
  const Check checked = on_device(check(x, name)).dtype(opwheel::floating).at_least(1);
  return checked.info().sizes[checked.info().ndim - 1];
}
inline void check_like(const Tensor& tensor, std::string_view name, const Tensor& x, std::string_view x_name) {
  on_device(check(tensor, name)).same_device(x, x_name).same_shape(x, x_name).same_dtype(x, x_name);
}
constexpr std::string_view kBothAreWritten = "both are written to",
                           kIsRead = "it is read while the other is written to";

// Refuses two tensors, of which one or both are written to, that may share memory.
inline void check_apart(const Tensor& a, std::string_view a_name, const Tensor& b, std::string_view b_name,
                        std::string_view why = kBothAreWritten) {
  if (opwheel::may_share_memory(a, b)) {
    fail("argument '", a_name, "' shares memory with '", b_name, "', and ", why, "; clone one of them first");
  }
}
// Refuses what is written to if several of its elements share one place in memory.
inline void check_elements_apart(const Tensor& written, std::string_view name) {
  if (opwheel::may_overlap_itself(opwheel::TensorInfo(written))) {
    fail("several elements of argument '", name,
         "' share one place in memory (an expanded or overlapping view); pass a tensor of its own, for instance its "
         ".clone()");
  }
}
// The tensor that a result goes into. It is not resized.
inline void check_out(const Tensor& out, const Tensor& x, std::string_view x_name) {
  check_like(out, "out", x, x_name);
  check_elements_apart(out, "out");
  check_apart(out, "out", x, x_name, kIsRead);
}
inline Tensor optional_vector(const OptionalTensor& given, std::string_view name, const Tensor& x, int64_t n,
                              std::string_view x_name = "x") {
  if (!given) return Tensor();
  on_device(check(*given, name)).same_device(x, x_name).same_dtype(x, x_name).shape({n});
  return contiguous(*given);
}
inline const void* data_or_null(const Tensor& tensor) {
  return tensor.handle() == nullptr ? nullptr : data<void>(tensor);
}

// Where rows are written.
struct RowsToWrite {
  void* data;
  int64_t stride;

  RowsToWrite(const Rows& rows) : data(rows.data()), stride(rows.stride) {}  // NOLINT: what is written of them
  // Of a new tensor, which has no gaps.
  RowsToWrite(const Tensor& made, int64_t length) : data(opwheel::data<void>(made)), stride(length) {}
};

// The dtype that is computed in.
inline ScalarType wide(ScalarType dtype) {
  return dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

// Sums over rows, in groups that are added up at the end: of `count` vectors of length n, one or two. Two have one
// allocation and one kernel that adds them up, which is less for the host.
class PartialSums {
 public:
  PartialSums(int count, int64_t parts, int64_t n, ScalarType dtype, opwheel::Device device)
      : parts_(parts),
        n_(n),
        dtype_(dtype),
        device_(device),
        groups_(new_empty({count, parts, n}, wide(dtype), device)) {}

  // A row for each group.
  char* of(int index) const {
    return data<char>(groups_) + index * parts_ * n_ * opwheel::element_size(opwheel::code_of(wide(dtype_)));
  }
  Tensor sums() const {
    Tensor result = new_empty({n_}, dtype_, device_);
    add_up(result, nullptr);
    return result;
  }
  std::array<Tensor, 2> both_sums() const {
    std::array<Tensor, 2> results{new_empty({n_}, dtype_, device_), new_empty({n_}, dtype_, device_)};
    add_up(results[0], data<void>(results[1]));
    return results;
  }

 private:
  void add_up(const Tensor& sums, void* more_sums) const {
    const SumParts arguments{data<void>(groups_), data<void>(sums), more_sums, n_, parts_};
    run(device_, dtype_, arguments, more_sums == nullptr ? n_ : 2 * n_, parts_);
  }

  int64_t parts_, n_;
  ScalarType dtype_;
  opwheel::Device device_;
  Tensor groups_;
};
