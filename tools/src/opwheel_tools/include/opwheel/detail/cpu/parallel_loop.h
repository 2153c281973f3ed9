// Runs an element-wise plan on the host: splits the elements over PyTorch's threads, and each thread's part into calls
// of a loop over the two innermost dimensions. A part may begin and end within a row; with sizes[0] = 4, sizes[1] = 4
// and the elements 2 to 14, the loop is called three times:
//
//     . . a a      data -> element 2,   size 2, outer_size 1
//     b b b b      data -> element 4,   size 4, outer_size 2
//     b b b b
//     c c c .      data -> element 12,  size 3, outer_size 1
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <cstdint>

#include "opwheel/detail/elementwise.h"

namespace opwheel::cpu {

constexpr int64_t kGrain = 32768;  // elements below which a second thread costs more than it saves, as in ATen

// Calls loop(data, size, outer_size) for the elements from `begin` to `end`, counted along the plan's dimensions:
// data[i] is operand i's first element; elements are the plan's strides[0] apart, rows its strides[1].
template <class Loop>
void serial_loop(const ElementwisePlan& plan, int64_t begin, int64_t end, const Loop& loop) {
  char* data[kMaxOperands];
  for (int i = 0; i < plan.operand_count; ++i) data[i] = plan.operands[i].data;
  const auto advance = [&](int d, int64_t steps) {
    for (int i = 0; i < plan.operand_count; ++i) data[i] += steps * plan.operands[i].strides[d];
  };

  if (plan.ndim <= 1) {
    if (plan.ndim == 1) advance(0, begin);
    return loop(data, end - begin, int64_t{1});
  }

  // To the element `begin`.
  int64_t index[kMaxDims] = {};
  int64_t rest = begin;
  for (int d = 0; d < plan.ndim; ++d) {
    index[d] = rest % plan.sizes[d];
    rest /= plan.sizes[d];
    advance(d, index[d]);
  }

  const int64_t row_length = plan.sizes[0];
  while (true) {
    const int64_t size = std::min(row_length - index[0], end - begin);
    int64_t outer_size = 1;
    if (size == row_length) {
      outer_size = std::min(plan.sizes[1] - index[1], (end - begin) / row_length);
    }
    loop(data, size, outer_size);
    begin += size * outer_size;
    if (begin == end) return;
    advance(0, -index[0]);
    index[0] = 0;
    for (int d = 1; d < plan.ndim; ++d) {
      const int64_t steps = d == 1 ? outer_size : 1;
      advance(d, steps);
      index[d] += steps;
      if (index[d] < plan.sizes[d]) break;
      advance(d, -plan.sizes[d]);
      index[d] = 0;
    }
  }
}

// serial_loop() over all elements, on one thread or several.
template <class Loop>
void parallel_loop(const ElementwisePlan& plan, const Loop& loop) {
  const auto part = [&](int64_t begin, int64_t end) { serial_loop(plan, begin, end, loop); };
  if (plan.numel <= kGrain) return part(0, plan.numel);
  using Part = decltype(part);
  const auto call = [](int64_t begin, int64_t end, void* context) { (*static_cast<Part*>(context))(begin, end); };
  OPWHEEL_SHIM(torch_parallel_for(0, plan.numel, kGrain, call, const_cast<void*>(static_cast<const void*>(&part))));
}

}  // namespace opwheel::cpu
