// What several operators check and prepare alike.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernels.h"
#include "opwheel/cpu/row_kernels.h"
#include "opwheel/kernels.h"

namespace transformer_ops::cpu {

using opwheel::check;
using opwheel::Check;
using opwheel::copy_to;
using opwheel::data;
using opwheel::device_of;
using opwheel::dtype_of;
using opwheel::fail;
using opwheel::new_empty;
using opwheel::new_empty_like;
using opwheel::ScalarType;
using opwheel::sizes_of;
using opwheel::Tensor;
using opwheel::cpu::Rows;
using opwheel::cpu::run;
using OptionalTensor = std::optional<Tensor>;

inline const Table& kernels() {
  static const Table& table = opwheel::cpu::best("transformer_ops", baseline::table, avx2::table, avx512::table);
  return table;
}

// x, and its last size.
inline int64_t check_rows(const Tensor& x, std::string_view name) {
  const Check checked = check(x, name).on_cpu().dtype(opwheel::floating).at_least(1);
  return checked.info().sizes[checked.info().ndim - 1];
}
inline void check_like(const Tensor& tensor, std::string_view name, const Tensor& x, std::string_view x_name) {
  check(tensor, name).on_cpu().same_shape(x, x_name).same_dtype(x, x_name);
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
  check(*given, name).on_cpu().same_dtype(x, x_name).shape({n});
  return contiguous(*given);
}
inline const void* data_or_null(const Tensor& tensor) {
  return tensor.handle() == nullptr ? nullptr : data<void>(tensor);
}

// Writes one value into all of a contiguous tensor.
inline void fill(const Tensor& tensor, double value) {
  opwheel::dispatch(dtype_of(tensor), [&]<class T>() {
    std::fill_n(data<T>(tensor), opwheel::TensorInfo(tensor).numel, static_cast<T>(value));
  });
}

// Whether to write a result past the caches, if a kernel has so many tensors of its shape.
inline bool should_stream(const Rows& y, int operand_count) {
  const int64_t size = opwheel::element_size(opwheel::code_of(dtype_of(y.tensor)));
  return y.stride == y.length && opwheel::cpu::should_stream(y.data(), y.rows, y.length * size, operand_count);
}

// The dtype that is computed in.
inline ScalarType wide(ScalarType dtype) {
  return dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

// How many groups rows are summed up in: enough for many threads, and never dependent on their number.
inline int64_t part_count(int64_t rows) { return std::min<int64_t>(rows, 64); }

inline Tensor new_partial(int64_t parts, int64_t n, ScalarType dtype, opwheel::Device device) {
  return new_empty({parts, n}, wide(dtype), device);
}

// The sums over all groups, of dtype `dtype`.
inline Tensor sum_parts(const Tensor& partial, int64_t parts, int64_t n, ScalarType dtype) {
  Tensor sums = new_empty({n}, dtype, opwheel::device_of(partial));
  const SumParts arguments{data<void>(partial), data<void>(sums), n, parts};
  run(kernels().sum_parts, dtype, arguments, n, parts);
  return sums;
}

}  // namespace transformer_ops::cpu
