// Whether an output may be written while the inputs are still being read. The rules are PyTorch's
// (ATen/MemoryOverlap.h), but for an overlap that PyTorch cannot classify and lets pass: here the result is computed
// into a temporary first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "opwheel/elementwise.h"

namespace opwheel {

enum class Overlap { none, same_elements, partial, unknown };

namespace detail {

// First and one-past-last byte that an operand touches, before or after the plan is finished.
struct ByteRange {
  int64_t begin, end;
};

inline ByteRange byte_range(const ElementwisePlan::Operand& operand) {
  ByteRange range{reinterpret_cast<int64_t>(operand.data), reinterpret_cast<int64_t>(operand.data)};
  for (int64_t d = 0; d < operand.info.ndim; ++d) {
    const int64_t reach = (operand.info.sizes[d] - 1) * operand.info.strides[d] * element_size(operand.info.dtype);
    (reach < 0 ? range.begin : range.end) += reach;
  }
  range.end += element_size(operand.info.dtype);
  return range;
}

inline int64_t stride_gcd(const ElementwisePlan::Operand& operand) {
  int64_t divisor = 0;
  for (int64_t d = 0; d < operand.info.ndim; ++d) {
    if (operand.info.sizes[d] > 1)
      divisor = std::gcd(divisor, operand.info.strides[d] * element_size(operand.info.dtype));
  }
  return divisor;
}

// Both operands only touch addresses start + k * divisor: interleaved ones, such as x[::2] and x[1::2], never meet.
inline bool interleaved(const ElementwisePlan::Operand& a, const ElementwisePlan::Operand& b) {
  const int64_t divisor = std::gcd(stride_gcd(a), stride_gcd(b));
  if (divisor == 0) return false;
  const int64_t distance = reinterpret_cast<int64_t>(b.data) - reinterpret_cast<int64_t>(a.data);
  const int64_t phase = (distance % divisor + divisor) % divisor;
  return phase >= element_size(a.info.dtype) && divisor - phase >= element_size(b.info.dtype);
}

}  // namespace detail

// Whether some element of the tensor is reached by two different indices. Exact but for tensors of which three and more
// dimensions reach into each other, which count as overlapping.
inline bool may_overlap_itself(const TensorInfo& tensor) {
  if (tensor.numel == 0) return false;
  struct Dim {
    int64_t stride, size;
  } dims[kMaxDims];
  int count = 0;
  for (int64_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.sizes[i] > 1) dims[count++] = {std::abs(tensor.strides[i]), tensor.sizes[i]};
  }
  std::sort(dims, dims + count, [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  int64_t reach = 0;  // of the dimensions before the last that is left
  for (int i = 0; i + 1 < count; ++i) reach += dims[i].stride * (dims[i].size - 1);
  // A step that is longer than all others together leads to where none of them do.
  while (count > 1 && dims[count - 1].stride > reach) {
    --count;
    reach -= dims[count - 1].stride * (dims[count - 1].size - 1);
  }
  if (count <= 1) return count == 1 && dims[0].stride == 0;
  if (count > 2) return true;
  // m steps of one are n steps of the other for the first time at their least common multiple.
  const int64_t divisor = std::gcd(dims[0].stride, dims[1].stride);
  if (divisor == 0) return true;
  return dims[1].stride / divisor < dims[0].size && dims[0].stride / divisor < dims[1].size;
}

// Call on a finished plan.
inline Overlap overlap(const ElementwisePlan& plan, const ElementwisePlan::Operand& output,
                       const ElementwisePlan::Operand& input) {
  if (plan.numel == 0 || input.info.numel == 0) return Overlap::none;
  const detail::ByteRange a = detail::byte_range(output);
  const detail::ByteRange b = detail::byte_range(input);
  if (a.end <= b.begin || b.end <= a.begin) return Overlap::none;
  const bool is_same_view = output.data == input.data && output.info.dtype == input.info.dtype &&
                            std::equal(output.strides, output.strides + plan.ndim, input.strides);
  if (is_same_view) return Overlap::same_elements;
  if (detail::interleaved(output, input)) return Overlap::none;
  const bool both_dense = is_non_overlapping_and_dense(output.info) && is_non_overlapping_and_dense(input.info);
  return both_dense ? Overlap::partial : Overlap::unknown;
}

}  // namespace opwheel
