// Row kernels by dtype. Included by sources that are compiled for different instruction sets, so it has no inline
// functions: the linker would keep one definition of each, of any instruction set (opwheel/detail/cpu/loop.h).
#pragma once

#include <cstdint>

namespace opwheel::cpu {

// Computes rows begin <= i < end.
template <class Arguments>
using RowKernel = void (*)(const Arguments& arguments, int64_t begin, int64_t end);

// In the order of opwheel::DType: float16, bfloat16, float32, float64.
template <class Arguments>
struct ByDtype {
  RowKernel<Arguments> functions[4];
};

}  // namespace opwheel::cpu

// ByDtype of a function template `kernel<T>`.
#define OPWHEEL_BY_DTYPE(kernel)                                    \
  {                                                                 \
    {                                                               \
      kernel<Half>, kernel<BFloat16>, kernel<float>, kernel<double> \
    }                                                               \
  }
