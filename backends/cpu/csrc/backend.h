// What muladd/kernels.h needs to know of this device: its type and how to run a plan.
#pragma once

#include <cstdint>

#include "compute.h"
#include "muladd/elementwise.h"
#include "rows.h"

namespace muladd::cpu {

struct Backend {
  static int32_t device_type() { return aoti_torch_device_type_cpu(); }

  template <template <class> class Functor, class... Params>
  static void launch(const ElementwisePlan& plan, Params... params) {
    switch (plan.dtype) {
      case DType::float16:
        return run<Half, float>(plan, Functor<float>{params...});
      case DType::bfloat16:
        return run<BFloat16, float>(plan, Functor<float>{params...});
      case DType::float32:
        return run<float, float>(plan, Functor<float>{params...});
      default:
        return run<double, double>(plan, Functor<double>{params...});
    }
  }

 private:
  template <class T, class C, class F>
  static void run(const ElementwisePlan& plan, F functor) {
    const RowKernel<T, C, F> row(plan, functor);
    parallel_rows(plan, row);
  }
};

}  // namespace muladd::cpu
