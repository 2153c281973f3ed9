// From an element-wise plan to launches of a kernel on the caller's queue.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <sycl/sycl.hpp>

#include "opwheel/elementwise.h"
#include "opwheel/xpu/device/walk.h"

namespace opwheel::xpu {

constexpr std::size_t kGroup = 256;           // work-items; every Intel GPU allows it
constexpr std::size_t kMostGroups = 1 << 16;  // beyond, work-items take several turns

using Data = std::array<char*, kOperands>;

// Where the kernels expect operand i of the plan.
inline int place(const ElementwisePlan& plan, int i) {
  return i < plan.output_count ? i : kOutputs + i - plan.output_count;
}

// The operands' addresses in their places.
inline Data data_of(const ElementwisePlan& plan) {
  Data data{};
  for (int i = 0; i < plan.operand_count; ++i) data[place(plan, i)] = plan.operands[i].data;
  return data;
}

// Enqueues a kernel for `items` work-items at least, without an event: nobody waits for it, and it costs microseconds.
template <class... Arguments>
void submit(::sycl::queue& queue, const ::sycl::kernel& kernel, int64_t items, const Data& data,
            Arguments... arguments) {
  const std::size_t groups = std::min((static_cast<std::size_t>(items) + kGroup - 1) / kGroup, kMostGroups);
  const auto pointer = [&](int i) { return static_cast<void*>(data[i]); };
  ::sycl::ext::oneapi::experimental::nd_launch(queue, ::sycl::nd_range<1>(groups * kGroup, kGroup), kernel, pointer(0),
                                               pointer(1), pointer(2), pointer(3), pointer(4), arguments...);
}

// The innermost dimensions of the plan, as many as one launch walks.
inline Walk walk_of(const ElementwisePlan& plan) {
  Walk walk{};
  walk.ndim = std::min(plan.ndim, kWalkDims);
  walk.numel = 1;
  for (int d = 0; d < walk.ndim; ++d) {
    walk.sizes[d] = plan.sizes[d];
    walk.numel *= plan.sizes[d];
    for (int i = 0; i < plan.operand_count; ++i) walk.strides[d][place(plan, i)] = plan.operands[i].strides[d];
  }
  for (int i = 0; i < plan.operand_count; ++i)
    walk.codes[place(plan, i)] = static_cast<Code>(plan.operands[i].info.dtype);
  return walk;
}

// Launches a kernel made of opwheel/xpu/device/strided.h: with the operands' addresses, a Walk and the functor.
template <class F>
void launch_strided(::sycl::queue& queue, const ElementwisePlan& plan, const ::sycl::kernel& kernel, F functor) {
  const Walk walk = walk_of(plan);
  const int64_t launches = plan.numel / walk.numel;
  for (int64_t launch = 0; launch < launches; ++launch) {
    Data data = data_of(plan);
    int64_t rest = launch;
    for (int d = walk.ndim; d < plan.ndim; ++d) {
      const int64_t index = rest % plan.sizes[d];
      rest /= plan.sizes[d];
      for (int i = 0; i < plan.operand_count; ++i) data[place(plan, i)] += index * plan.operands[i].strides[d];
    }
    submit(queue, kernel, walk.numel, data, walk, functor);
  }
}

}  // namespace opwheel::xpu
