// What opwheel/elementwise_kernels.h needs to know of a device: its type and how to run a plan.
#pragma once

#include <cstdint>

#include "choose.h"
#include "opwheel/elementwise.h"

namespace muladd::cuda {

// Device is made from a device's index, says its type() and can enqueue() kernels (choose.h).
template <class Device>
struct Backend {
  static int32_t device_type() { return Device::type(); }

  template <template <class> class Functor, class... Params>
  static void launch(const ElementwisePlan& plan, Params... params) {
    Device device(plan.device.index);
    switch (plan.dtype) {
      case DType::float16:
        return cuda::launch<Half>(plan, Functor<float>{params...}, device);
      case DType::bfloat16:
        return cuda::launch<BFloat16>(plan, Functor<float>{params...}, device);
      case DType::float32:
        return cuda::launch<float>(plan, Functor<float>{params...}, device);
      default:
        return cuda::launch<double>(plan, Functor<double>{params...}, device);
    }
  }
};

}  // namespace muladd::cuda
