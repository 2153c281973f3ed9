// The kernels of the device code: X(functor of muladd/arithmetic.h, outputs, inputs).
#pragma once

#define KERNELS(X)        \
  X(MulAdd, 1, 2)         \
  X(MulAddBackward, 2, 3) \
  X(Fma, 1, 3)            \
  X(Mul, 1, 2)            \
  X(Add, 1, 2)            \
  X(Scale, 1, 1)
