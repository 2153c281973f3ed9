// Walks an element-wise plan on the host: splits the elements over PyTorch's threads, and each part into runs of rows
// along the two innermost dimensions.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <cstdint>

#include "opwheel/elementwise.h"

namespace muladd::cpu {

constexpr int64_t kGrain = 32768;  // elements below which a second thread costs more than it saves, as in ATen

// run(data, n, rows): `rows` rows of n elements. data[i] is operand i's first; elements are the plan's strides[0]
// apart, rows its strides[1].
template <class Run>
void for_each_run(const ElementwisePlan& plan, int64_t begin, int64_t end, const Run& run) {
  int64_t index[kMaxDims] = {};
  char* data[kMaxOperands];
  for (int i = 0; i < plan.operand_count; ++i) data[i] = plan.operands[i].data;
  const auto advance = [&](int d, int64_t steps) {
    for (int i = 0; i < plan.operand_count; ++i) data[i] += steps * plan.operands[i].strides[d];
  };

  int64_t rest = begin;
  for (int d = 0; d < plan.ndim; ++d) {
    index[d] = rest % plan.sizes[d];
    rest /= plan.sizes[d];
    advance(d, index[d]);
  }

  const int64_t row_length = plan.ndim == 0 ? 1 : plan.sizes[0];
  while (true) {
    const int64_t n = std::min(row_length - index[0], end - begin);
    int64_t rows = 1;
    if (n == row_length && plan.ndim > 1) rows = std::min(plan.sizes[1] - index[1], (end - begin) / row_length);
    run(data, n, rows);
    begin += n * rows;
    if (begin == end) return;
    advance(0, -index[0]);
    index[0] = 0;
    for (int d = 1; d < plan.ndim; ++d) {
      const int64_t steps = d == 1 ? rows : 1;
      advance(d, steps);
      index[d] += steps;
      if (index[d] < plan.sizes[d]) break;
      advance(d, -plan.sizes[d]);
      index[d] = 0;
    }
  }
}

template <class Run>
void parallel_runs(const ElementwisePlan& plan, const Run& run) {
  const auto part = [&](int64_t begin, int64_t end) { for_each_run(plan, begin, end, run); };
  if (plan.numel <= kGrain) return part(0, plan.numel);
  using Part = decltype(part);
  const auto call = [](int64_t begin, int64_t end, void* context) { (*static_cast<Part*>(context))(begin, end); };
  OPWHEEL_SHIM(torch_parallel_for(0, plan.numel, kGrain, call, const_cast<void*>(static_cast<const void*>(&part))));
}

}  // namespace muladd::cpu
