// The operators as they were when the backend was built. test_grown_schemas.py has the same list.
#pragma once

#include "opwheel/operators.h"

#define WAVES_GROWN_KERNELS(KERNEL)                                           \
  KERNEL(twice, "twice(Tensor x) -> Tensor")                                  \
  KERNEL(times, "times(Tensor x, float k) -> Tensor")                         \
  KERNEL(both, "both(Tensor x, Tensor y) -> (Tensor, Tensor)")                \
  KERNEL(pick, "pick(Tensor x, *, bool negate=False, int? n=None) -> Tensor") \
  KERNEL(fill, "fill(Tensor(a!) x, float[2] values) -> ()")
