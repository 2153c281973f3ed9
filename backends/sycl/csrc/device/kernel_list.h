// The kernels of every image: X(name, functor of muladd/arithmetic.h, outputs, inputs).
#pragma once

#define MULADD_SYCL_KERNELS(X)             \
  X(muladd, MulAdd, 1, 2)                  \
  X(muladd_backward, MulAddBackward, 2, 3) \
  X(fma, Fma, 1, 3)                        \
  X(mul, Mul, 1, 2)                        \
  X(add, Add, 1, 2)                        \
  X(scale, Scale, 1, 1)
