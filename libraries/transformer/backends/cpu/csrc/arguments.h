// What several operators check and prepare alike.
#pragma once

#include <optional>
#include <string_view>

#include "kernels.h"
#include "opwheel/cpu/row_kernels.h"
#include "opwheel/kernels.h"

namespace transformer_ops::cpu {

using opwheel::check;
using opwheel::Check;
using opwheel::fail;
using opwheel::new_empty;
using opwheel::new_empty_like;
using opwheel::ScalarType;
using opwheel::Tensor;
using opwheel::cpu::Rows;

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
inline Tensor optional_vector(const std::optional<Tensor>& given, std::string_view name, const Tensor& x, int64_t n,
                              std::string_view x_name = "x") {
  if (!given) return Tensor();
  check(*given, name).on_cpu().same_dtype(x, x_name).shape({n});
  return contiguous(*given);
}
inline const void* data_or_null(const Tensor& tensor) {
  return tensor.handle() == nullptr ? nullptr : opwheel::data<void>(tensor);
}

// How many groups rows are summed up in: enough for many threads, and never dependent on their number.
inline int64_t part_count(int64_t rows) { return std::min<int64_t>(rows, 64); }

inline Tensor new_partial(int64_t parts, int64_t n, ScalarType dtype, opwheel::Device device) {
  return new_empty({parts, n}, dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float, device);
}

// The sums over all groups, of dtype `dtype`.
inline Tensor sum_parts(const Tensor& partial, int64_t parts, int64_t n, ScalarType dtype) {
  Tensor sums = new_empty({n}, dtype, opwheel::device_of(partial));
  const SumParts arguments{opwheel::data<void>(partial), opwheel::data<void>(sums), n, parts};
  opwheel::cpu::run(kernels().sum_parts, dtype, arguments, n, parts);
  return sums;
}

}  // namespace transformer_ops::cpu
