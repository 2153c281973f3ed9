// The dense kernels: when they fit and how they are launched.
#pragma once

#include <algorithm>
#include <cstdint>

#include "opwheel/xpu/launch.h"

namespace muladd::xpu {

constexpr int64_t kVectorBytes = 16;  // what one work-item of a dense kernel loads at once

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
  submit(queue, kernel, std::max<int64_t>(plan.numel / width, 1), data_of(plan), plan.numel, functor);
}

}  // namespace muladd::xpu
