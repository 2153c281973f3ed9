// The operators: a row each, with the functor that computes it and its schema (opwheel/operators.h). Nothing else lists
// them: the schema library, every backend, the C functions, ExecuTorch's kernels and the Python package read this
// list.
#pragma once

#include "muladd/functors.h"

#define MULADD_OPERATORS(OPERATOR, OVERLOAD)                                                               \
  OPERATOR(muladd, MulAdd, "muladd(Tensor a, Tensor b, float c) -> Tensor")                                \
  OVERLOAD(muladd_out, muladd, "muladd.out(Tensor a, Tensor b, float c, *, Tensor(a!) out) -> Tensor(a!)") \
  OVERLOAD(muladd_, muladd, "muladd_(Tensor(a!) a, Tensor b, float c) -> Tensor(a!)")                      \
  OPERATOR(muladd_backward, MulAddBackward,                                                                \
           "muladd_backward(Tensor grad_output, Tensor a, Tensor b) -> (Tensor, Tensor)")                  \
  OPERATOR(fma, Fma, "fma(Tensor a, Tensor b, Tensor c) -> Tensor")                                        \
  OVERLOAD(fma_out, fma, "fma.out(Tensor a, Tensor b, Tensor c, *, Tensor(a!) out) -> Tensor(a!)")         \
  OPERATOR(mul, Mul, "mul(Tensor a, Tensor b) -> Tensor")                                                  \
  OVERLOAD(mul_out, mul, "mul.out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)")                   \
  OPERATOR(add, Add, "add(Tensor a, Tensor b) -> Tensor")                                                  \
  OVERLOAD(add_out, add, "add.out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)")                   \
  OPERATOR(scale, Scale, "scale(Tensor x, float factor) -> Tensor")                                        \
  OVERLOAD(scale_out, scale, "scale.out(Tensor x, float factor, *, Tensor(a!) out) -> Tensor(a!)")
