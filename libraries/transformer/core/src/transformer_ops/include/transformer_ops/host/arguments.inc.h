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

// The dtype that is computed in.
inline ScalarType wide(ScalarType dtype) {
  return dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

inline Tensor new_partial(int64_t parts, int64_t n, ScalarType dtype, opwheel::Device device) {
  return new_empty({parts, n}, wide(dtype), device);
}

// The sums over all groups, of dtype `dtype`.
inline Tensor sum_parts(const Tensor& partial, int64_t parts, int64_t n, ScalarType dtype) {
  Tensor sums = new_empty({n}, dtype, opwheel::device_of(partial));
  const SumParts arguments{data<void>(partial), data<void>(sums), n, parts};
  run(device_of(partial), dtype, arguments, n, parts);
  return sums;
}
