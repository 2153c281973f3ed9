// The CUDA backend of a library: every operator of its list. A backend has one source file for the registrations,
//
//     #include "opwheel/cuda/backend.h"
//     #include "waves/operators.h"
//     OPWHEEL_CUDA_BACKEND(waves, WAVES_OPERATORS)
//
// and one for each dtype that nvcc compiles:
//
//     #include "opwheel/cuda/enqueue.cuh"
//     #include "waves/operators.h"
//     OPWHEEL_CUDA_KERNELS(waves, WAVES_OPERATORS, float)
#pragma once

#include <cstdint>

#include "opwheel/detail/cuda/launch.h"
#include "opwheel/detail/cuda/stream.h"
#include "opwheel/detail/elementwise.h"
#include "opwheel/elementwise_kernels.h"

namespace opwheel::cuda {

// Device is made from a device's index, says its type() and can enqueue() kernels (launch.h).
template <class Device>
struct Backend {
  static int32_t device_type() { return Device::type(); }

  template <class Op, class... Params>
  static void launch(const ElementwisePlan& plan, Params... params) {
    Device device(plan.device.index);
    with_element_type<StoredTypes>(plan.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      cuda::launch<T>(plan, typename Op::template Functor<ComputeType<T>>{params...}, device);
    });
  }
};

}  // namespace opwheel::cuda

// Declares the operators and registers a kernel for each at the dispatch key CUDA.
#define OPWHEEL_CUDA_BACKEND(library, LIST) \
  OPWHEEL_DECLARE_OPERATORS(library, LIST)  \
  OPWHEEL_LIBRARY_IMPL(library, CUDA, ::opwheel::cuda::Backend<::opwheel::cuda::CurrentStream>)
