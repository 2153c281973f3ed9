// Splits a plan until 32-bit arithmetic can address every part, as PyTorch's TensorIterator::with_32bit_indexing()
// does: on a GPU a 64-bit division takes many times as long.
#pragma once

#include <algorithm>
#include <cstdint>

#include "opwheel/detail/elementwise.h"
#include "opwheel/detail/offset_calculator.h"

namespace opwheel {

// From an operand's first byte to one past its last.
inline int64_t reach(const ElementwisePlan& plan, const ElementwisePlan::Operand& operand) {
  int64_t bytes = element_size(operand.info.dtype);
  for (int d = 0; d < plan.ndim; ++d) bytes += (plan.sizes[d] - 1) * operand.strides[d];
  return bytes;
}

inline bool can_use_32bit_indexing(const ElementwisePlan& plan, int64_t max_elements, int64_t max_reach) {
  return plan.numel <= max_elements &&
         std::all_of(plan.operands, plan.operands + plan.operand_count,
                     [&](const ElementwisePlan::Operand& operand) { return reach(plan, operand) <= max_reach; });
}

// The dimension along which the plan extends furthest, in bytes of any operand.
inline int longest_dimension(const ElementwisePlan& plan) {
  int longest = 0;
  int64_t longest_extent = -1;
  for (int d = 0; d < plan.ndim; ++d) {
    for (int i = 0; i < plan.operand_count; ++i) {
      const int64_t extent = (plan.sizes[d] - 1) * plan.operands[i].strides[d];
      if (extent > longest_extent) {
        longest = d;
        longest_extent = extent;
      }
    }
  }
  return longest;
}

// Calls body(part) with parts of the plan that 32-bit arithmetic can address. Most plans are one part.
template <class Body>
void with_32bit_indexing(const ElementwisePlan& plan, const Body& body, int64_t max_elements = kMaxIndexedElements,
                         int64_t max_reach = kMaxIndexedBytes) {
  if (can_use_32bit_indexing(plan, max_elements, max_reach)) return body(plan);
  const int d = longest_dimension(plan);
  // A multiple of 16 elements keeps both parts aligned as the whole was.
  const int64_t half = plan.sizes[d] / 2;
  const int64_t cut = half >= 16 ? half / 16 * 16 : half;
  ElementwisePlan part = plan;
  part.sizes[d] = cut;
  part.numel = plan.numel / plan.sizes[d] * cut;
  with_32bit_indexing(part, body, max_elements, max_reach);
  part.sizes[d] = plan.sizes[d] - cut;
  part.numel = plan.numel - part.numel;
  for (int i = 0; i < part.operand_count; ++i) part.operands[i].data += cut * plan.operands[i].strides[d];
  with_32bit_indexing(part, body, max_elements, max_reach);
}

// The OffsetCalculator of a part, for items of `lanes` elements along the innermost dimension.
template <int kOperands>
OffsetCalculator<kOperands> offset_calculator(const ElementwisePlan& part, int64_t lanes) {
  OffsetCalculator<kOperands> calculator;
  int ndim = 0;
  for (int d = 0; d < part.ndim; ++d) {
    const int64_t items = d == 0 ? lanes : 1;
    if (part.sizes[d] == items) continue;
    calculator.sizes[ndim] = IntDivider(static_cast<uint32_t>(part.sizes[d] / items));
    for (int i = 0; i < kOperands; ++i) {
      calculator.strides[ndim][i] = static_cast<uint32_t>(part.operands[i].strides[d] * items);
    }
    ++ndim;
  }
  calculator.ndim = std::max(ndim, 1);
  return calculator;
}

}  // namespace opwheel
