// From an element-wise plan to launches of a library's kernels on the caller's queue.
#pragma once

#include <algorithm>
#include <cstdint>
#include <sycl/sycl.hpp>

#include "opwheel/detail/elementwise.h"
#include "opwheel/detail/indexing_32bit.h"
#include "opwheel/detail/xpu/device/operand_dtypes.h"

namespace opwheel::xpu {

constexpr std::size_t kGroup = 256;           // work-items; every Intel GPU allows it
constexpr std::size_t kMostGroups = 1 << 16;  // beyond, work-items take several turns
constexpr int64_t kVectorBytes = 16;          // what one work-item of a dense kernel loads at once

// Enqueues a kernel for `items` work-items at least, without an event: nobody waits for it, and it costs microseconds.
// Every kernel takes a pointer for each operand there may be, results first; those of operands that are not there are
// null.
template <class... Arguments>
void submit(::sycl::queue& queue, const ::sycl::kernel& kernel, int64_t items, const ElementwisePlan& plan,
            Arguments... arguments) {
  const std::size_t groups = std::min((static_cast<std::size_t>(items) + kGroup - 1) / kGroup, kMostGroups);
  void* data[kMaxOperands] = {};
  for (int i = 0; i < plan.operand_count; ++i) data[i] = plan.operands[i].data;
  ::sycl::ext::oneapi::experimental::nd_launch(queue, ::sycl::nd_range<1>(groups * kGroup, kGroup), kernel, data[0],
                                               data[1], data[2], data[3], data[4], data[5], data[6], data[7],
                                               arguments...);
}

// Whether every operand is one aligned block of the result's own dtype.
inline bool is_dense(const ElementwisePlan& plan) {
  if (plan.ndim != 1) return false;
  return std::all_of(plan.operands, plan.operands + plan.operand_count, [&](const ElementwisePlan::Operand& operand) {
    return operand.info.dtype == plan.dtype && operand.strides[0] == element_size(plan.dtype) &&
           reinterpret_cast<uintptr_t>(operand.data) % kVectorBytes == 0;
  });
}

template <class F>
void launch_dense(::sycl::queue& queue, const ElementwisePlan& plan, const ::sycl::kernel& kernel, F functor) {
  const int64_t width = kVectorBytes / element_size(plan.dtype);
  submit(queue, kernel, std::max<int64_t>(plan.numel / width, 1), plan, plan.numel, functor);
}

template <class F>
void launch_strided(::sycl::queue& queue, const ElementwisePlan& plan, const ::sycl::kernel& kernel, F functor) {
  OperandDTypes dtypes{};
  for (int i = 0; i < plan.operand_count; ++i) dtypes.of[i] = plan.operands[i].info.dtype;
  with_32bit_indexing(plan, [&](const ElementwisePlan& part) {
    const auto place = offset_calculator<FunctorTraits<F>::kOperands>(part, 1);
    submit(queue, kernel, part.numel, part, static_cast<uint32_t>(part.numel), place, dtypes, functor);
  });
}

}  // namespace opwheel::xpu
