// The XPU backend of a library: every operator of its list, with kernels in SYCL. A backend has one source file for the
// registrations,
//
//     #include "opwheel/xpu/backend.h"
//     #include "waves/operators.h"
//     OPWHEEL_XPU_BACKEND(waves, WAVES_OPERATORS)
//
// and one with the device code (opwheel/xpu/device/elementwise.h).
#pragma once

#include <string>

#include "opwheel/detail/device_guard.h"
#include "opwheel/detail/elementwise.h"
#include "opwheel/detail/xpu/kernel_bundle.h"
#include "opwheel/detail/xpu/launch.h"
#include "opwheel/detail/xpu/queue.h"
#include "opwheel/elementwise_kernels.h"

namespace opwheel::xpu {

struct Backend {
  static int32_t device_type() { return aoti_torch_device_type_xpu(); }

  // Enqueued on PyTorch's current stream, without waiting. float16 and bfloat16 are computed in float32.
  template <class Op, class... Params>
  static void launch(const ElementwisePlan& plan, Params... params) {
    plan.dtype == DType::float64 ? run<Op>(plan, typename Op::template Functor<double>{params...})
                                 : run<Op>(plan, typename Op::template Functor<float>{params...});
  }

 private:
  template <class Op, class F>
  static void run(const ElementwisePlan& plan, F functor) {
    static const std::string name = Op::Operator::identifier, dense = name + "_dense", strided = name + "_strided";
    const DeviceGuard guard(plan.device.index);
    ::sycl::queue& queue = current_queue(plan.device.index);
    if (is_dense(plan)) {
      launch_dense(queue, plan, kernel(queue, plan.dtype, dense), functor);
    } else {
      launch_strided(queue, plan, kernel(queue, plan.dtype, strided), functor);
    }
  }
};

}  // namespace opwheel::xpu

// Declares the operators and registers a kernel for each at the dispatch key XPU.
#define OPWHEEL_XPU_BACKEND(library, LIST) \
  OPWHEEL_DECLARE_OPERATORS(library, LIST) \
  OPWHEEL_LIBRARY_IMPL(library, XPU, ::opwheel::xpu::Backend)
