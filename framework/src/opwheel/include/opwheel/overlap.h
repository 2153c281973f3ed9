// Whether an output may be written while the inputs are still being read. The rules are PyTorch's
// (ATen/MemoryOverlap.h), but for an overlap that PyTorch cannot classify and lets pass: here the result is computed
// into a temporary first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "opwheel/allocate.h"
#include "opwheel/elementwise.h"

namespace opwheel {

enum class Overlap { none, same_elements, partial, unknown };

namespace detail {

// First and one-past-last byte that a tensor touches.
struct ByteRange {
  int64_t begin, end;

  bool meets(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

inline ByteRange byte_range(const TensorInfo& tensor, const void* data) {
  ByteRange range{reinterpret_cast<int64_t>(data), reinterpret_cast<int64_t>(data)};
  for (int64_t d = 0; d < tensor.ndim; ++d) {
    const int64_t reach = (tensor.sizes[d] - 1) * tensor.strides[d] * element_size(tensor.dtype);
    (reach < 0 ? range.begin : range.end) += reach;
  }
  range.end += element_size(tensor.dtype);
  return range;
}

// A tensor as blocks without gaps, all of them `block` bytes long, that begin at multiples of `step` bytes from the
// first, or just one if that is 0.
struct Blocks {
  int64_t block, step = 0;

  explicit Blocks(const TensorInfo& tensor) : block(element_size(tensor.dtype)) {
    const int64_t size = block;
    uint64_t within = 0;  // dimensions, a bit each
    for (bool has_grown = true; has_grown;) {
      has_grown = false;
      for (int64_t d = 0; d < tensor.ndim; ++d) {
        if (within >> d & 1 || tensor.sizes[d] == 1 || tensor.strides[d] * size != block) continue;
        block *= tensor.sizes[d];
        within |= uint64_t{1} << d;
        has_grown = true;
      }
    }
    for (int64_t d = 0; d < tensor.ndim; ++d) {
      if (!(within >> d & 1) && tensor.sizes[d] > 1) step = std::gcd(step, tensor.strides[d] * size);
    }
  }
};

// Whether blocks of both never meet, because each has a place of its own in every step: x[::2] and x[1::2], or the
// first and the last columns of a matrix.
inline bool are_interleaved(const TensorInfo& a, const void* a_data, const TensorInfo& b, const void* b_data) {
  const Blocks of_a(a), of_b(b);
  const int64_t step = std::gcd(of_a.step, of_b.step);
  if (step == 0) return false;
  const int64_t distance = reinterpret_cast<int64_t>(b_data) - reinterpret_cast<int64_t>(a_data);
  const int64_t phase = (distance % step + step) % step;
  return phase >= of_a.block && step - phase >= of_b.block;
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

// Whether some element of one tensor may be, in part, where one of the other is. That they are apart is found out where
// the addresses between their first and last bytes are, and where blocks of both take turns.
inline bool may_share_memory(const Tensor& a, const Tensor& b) {
  const TensorInfo one(a), other(b);
  if (one.numel == 0 || other.numel == 0) return false;
  const void *const data_a = data<void>(a), *const data_b = data<void>(b);
  return detail::byte_range(one, data_a).meets(detail::byte_range(other, data_b)) &&
         !detail::are_interleaved(one, data_a, other, data_b);
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
  if (detail::are_interleaved(output.info, output.data, input.info, input.data)) return Overlap::none;
  const bool both_dense = is_non_overlapping_and_dense(output.info) && is_non_overlapping_and_dense(input.info);
  return both_dense ? Overlap::partial : Overlap::unknown;
}

}  // namespace opwheel
