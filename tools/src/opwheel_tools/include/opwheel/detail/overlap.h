// Whether an output may be written while the inputs are still being read. The rules are PyTorch's
// (ATen/MemoryOverlap.h), but for an overlap that PyTorch cannot classify and lets pass: here the result is computed
// into a temporary first.
#pragma once

#include <algorithm>
#include <cstdint>

#include "opwheel/detail/allocate.h"
#include "opwheel/detail/elementwise.h"
#include "opwheel/detail/stride_sums.h"

namespace opwheel {

enum class Overlap { none, same_elements, partial, unknown };

namespace detail {

// First and one-past-last byte that a tensor touches.
struct ByteRange {
  int64_t begin, end;

  bool meets(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

inline ByteRange byte_range(const TensorInfo& tensor, const void* data) {
  const int64_t size = element_size(tensor);
  ByteRange range{reinterpret_cast<int64_t>(data), reinterpret_cast<int64_t>(data) + size};
  for (int64_t d = 0; d < tensor.ndim; ++d) range.end += (tensor.sizes[d] - 1) * tensor.strides[d] * size;
  return range;
}

// Whether some byte belongs to an element of both. Both have elements, and their byte ranges meet.
//
// A byte of a is at a_data plus some of a's strides plus less than an element, and so is one of b. They are the same if
// a's strides, and b's backwards from its last element, add up to the distance from a's first element to b's last one:
// but for some bytes less or more, because elements may meet in a part of them.
inline bool may_meet(const TensorInfo& a, const void* a_data, const TensorInfo& b, const void* b_data) {
  const int64_t a_size = element_size(a), b_size = element_size(b);
  StrideSums sums;
  for (int64_t d = 0; d < a.ndim; ++d) sums.add(a.strides[d] * a_size, a.sizes[d] - 1);
  for (int64_t d = 0; d < b.ndim; ++d) sums.add(b.strides[d] * b_size, b.sizes[d] - 1);
  sums.finish();
  const int64_t to_last = byte_range(b, b_data).end - b_size - reinterpret_cast<int64_t>(a_data);
  for (int64_t less = 1 - a_size; less < b_size; ++less) {
    if (sums.may_reach(to_last + less)) return true;
  }
  return false;
}

}  // namespace detail

// Whether some element of the tensor is reached by two different indices. Exact, but where that takes too many tries
// (opwheel/detail/stride_sums.h): such tensors count as overlapping. The strides of views take a few.
inline bool may_overlap_itself(const TensorInfo& tensor) {
  if (tensor.numel == 0) return false;
  struct Dim {
    int64_t stride, size;
  } dims[kMaxDims];
  int count = 0;
  for (int64_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.sizes[i] > 1) dims[count++] = {tensor.strides[i], tensor.sizes[i]};
  }
  std::sort(dims, dims + count, [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  int64_t reach = 0;  // of the dimensions before this one
  for (int i = 0; i < count; ++i) {
    const auto [stride, size] = dims[i];
    // Some steps along this dimension, one at least, lead to where steps along those before, forwards and backwards,
    // lead as well. A step that is longer than all others together leads to where none of them do.
    if (stride <= reach) {
      detail::StrideSums sums;
      for (int k = 0; k < i; ++k) sums.add(dims[k].stride, 2 * (dims[k].size - 1));
      sums.add(stride, size - 2);
      sums.finish();
      if (sums.may_reach(reach + stride * (size - 1))) return true;
    }
    reach += stride * (size - 1);
  }
  return false;
}

// Whether some element of one tensor is, in part, where one of the other is; their dtypes may differ. Exact, but where
// that takes too many tries (opwheel/detail/stride_sums.h): such tensors count as sharing memory. The strides of views
// take a few.
inline bool may_share_memory(const Tensor& a, const Tensor& b) {
  const TensorInfo one(a), other(b);
  if (one.numel == 0 || other.numel == 0) return false;
  const void *const data_a = data<void>(a), *const data_b = data<void>(b);
  return detail::byte_range(one, data_a).meets(detail::byte_range(other, data_b)) &&
         detail::may_meet(one, data_a, other, data_b);
}

// Call on a finished plan.
inline Overlap overlap(const ElementwisePlan& plan, const ElementwisePlan::Operand& output,
                       const ElementwisePlan::Operand& input) {
  if (plan.numel == 0 || input.info.numel == 0) return Overlap::none;
  const detail::ByteRange range = detail::byte_range(output.info, output.data);
  if (!range.meets(detail::byte_range(input.info, input.data))) return Overlap::none;
  const bool is_same_view = output.data == input.data && output.info.dtype == input.info.dtype &&
                            std::equal(output.strides, output.strides + plan.ndim, input.strides);
  if (is_same_view) return Overlap::same_elements;
  if (!detail::may_meet(output.info, output.data, input.info, input.data)) return Overlap::none;
  const bool both_dense = is_non_overlapping_and_dense(output.info) && is_non_overlapping_and_dense(input.info);
  return both_dense ? Overlap::partial : Overlap::unknown;
}

}  // namespace opwheel
