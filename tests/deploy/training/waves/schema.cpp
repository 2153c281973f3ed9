#include "opwheel/schema_library.h"

#define WAVES_KERNELS(KERNEL)                                   \
  KERNEL(cube, "cube(Tensor x) -> Tensor")                      \
  KERNEL(square, "square(Tensor x) -> (Tensor y, Tensor kept)") \
  KERNEL(both, "both(Tensor x, Tensor y) -> Tensor")            \
  KERNEL(pooled, "pooled(Tensor x, Tensor w) -> Tensor")        \
  KERNEL(reciprocal, "reciprocal(Tensor x) -> Tensor")          \
  KERNEL(sign, "sign(Tensor x) -> Tensor")

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves, WAVES_KERNELS)
