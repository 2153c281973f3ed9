#pragma once

#include "opwheel/operators.h"

#define WAVES_KERNELS(KERNEL)                                                                                    \
  KERNEL(rms_norm, "rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor y, Tensor rstd)")                    \
  KERNEL(rms_norm_backward,                                                                                      \
         "rms_norm_backward(Tensor grad_output, Tensor x, Tensor weight, Tensor rstd) -> (Tensor, Tensor)")      \
  KERNEL(rope, "rope(Tensor q, Tensor cos, Tensor sin) -> Tensor")                                               \
  KERNEL(quantize_rowwise, "quantize_rowwise(Tensor x) -> (Tensor q, Tensor scale)")                             \
  KERNEL(dequantize, "dequantize(Tensor q, Tensor scale, *, ScalarType dtype=float) -> Tensor")                  \
  KERNEL(softmax, "softmax(Tensor x, int dim) -> Tensor")                                                        \
  KERNEL(softmax_backward, "softmax_backward(Tensor grad_output, Tensor y, int dim) -> Tensor")                  \
  KERNEL(solve, "solve(Tensor a, Tensor b) -> Tensor")                                                           \
  KERNEL(nonzero, "nonzero(Tensor x) -> Tensor")                                                                 \
  KERNEL(reshape_and_cache, "reshape_and_cache(Tensor key, Tensor(a!) cache, Tensor slots) -> ()")               \
  KERNEL(scale_all, "scale_all(Tensor(a!)[] parts, float factor, Tensor(b!)? total=None) -> ()")                 \
  KERNEL(mixture,                                                                                                \
         "mixture(Tensor[] parts, Tensor? bias=None, *, int[] weights=[1, 2], bool mean=False, str mode='sum', " \
         "float scale=1.5) -> Tensor")                                                                           \
  KERNEL(window, "window(SymInt size, ScalarType dtype=float, Device? device=None) -> Tensor")
