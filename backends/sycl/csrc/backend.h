// What opwheel/elementwise_kernels.h needs to know of this device: its type and how to run a plan.
#pragma once

#include "device/kernel_list.h"
#include "launch.h"
#include "muladd/arithmetic.h"
#include "opwheel/device_guard.h"
#include "opwheel/elementwise.h"
#include "opwheel/xpu/kernel_bundle.h"
#include "opwheel/xpu/queue.h"

namespace muladd::xpu {

// The device code's functions that compute a functor.
template <template <class> class Functor>
struct EntryPoints;
#define MULADD_SYCL_NAME(name, Functor, outputs, inputs)     \
  template <>                                                \
  struct EntryPoints<Functor> {                              \
    static constexpr const char* dense = #name "_dense";     \
    static constexpr const char* strided = #name "_strided"; \
  };
MULADD_SYCL_KERNELS(MULADD_SYCL_NAME)
#undef MULADD_SYCL_NAME

struct Backend {
  static int32_t device_type() { return aoti_torch_device_type_xpu(); }

  template <template <class> class Functor, class... Params>
  static void launch(const ElementwisePlan& plan, Params... params) {
    plan.dtype == DType::float64 ? run<Functor>(plan, Functor<double>{params...})
                                 : run<Functor>(plan, Functor<float>{params...});
  }

 private:
  template <template <class> class Functor, class F>
  static void run(const ElementwisePlan& plan, F functor) {
    using Entries = EntryPoints<Functor>;
    const DeviceGuard guard(plan.device.index);
    ::sycl::queue& queue = current_queue(plan.device.index);
    if (is_dense(plan)) {
      launch_dense(queue, plan, kernel(queue, plan.dtype, Entries::dense), functor);
    } else {
      launch_strided(queue, plan, kernel(queue, plan.dtype, Entries::strided), functor);
    }
  }
};

}  // namespace muladd::xpu
