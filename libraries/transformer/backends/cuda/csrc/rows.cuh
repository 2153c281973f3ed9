// What the kernels share: rows whose element type is known when they run, and functions of one number.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "opwheel/cuda/vectorized_rows.cuh"
#include "opwheel/kernels.h"
#include "transformer_ops/kernel_arguments.h"

namespace transformer_ops::cuda {

using opwheel::ComputeType;
using opwheel::Device;
using opwheel::dispatch;
using opwheel::ScalarType;
using opwheel::cuda::are_aligned;
using opwheel::cuda::kAsManyAsFit;
using opwheel::cuda::Lanes;
using opwheel::cuda::plan_teams;
using opwheel::cuda::run_teams;

// Threads of a multiprocessor where a team holds sums over rows; every device has room for them. Where it only loads
// something for all of its rows they are as many as fit: the norms' kernels take 38 to 92 registers, by dtype and
// architecture, so that a device of 9.0 has room for 1,536 threads of one and for 1,024 of another.
constexpr int64_t kFewThreads = 1024;

// Runs a functor over rows of elements of type T, with a team for each row, or as many as `resident` says.
template <class T, class F>
void run_rows(Device device, int64_t rows, int64_t length, bool is_aligned, const F& functor,
              int64_t resident = opwheel::cuda::kAnyNumber) {
  run_teams(plan_teams<T, F>(device, rows, length, is_aligned, resident), functor);
}

// Rounded as a tensor of T would be.
template <class T, class C, int kCount>
__device__ Lanes<C, kCount> rounded(const Lanes<C, kCount>& lanes) {
  return opwheel::cuda::widened<C>(opwheel::cuda::narrowed<T>(lanes));
}

// What is computed for 16-bit numbers may be as wrong as float32's last digits; else it is as exact as the library's.
template <class T>
constexpr bool kIsNarrow = sizeof(T) == 2;

// exp(x - shift). For 16-bit numbers 2^((x - shift) log2(e)) by the device's own instruction, whose relative error is
// 2^-22 and that of the product. The difference comes first: x log2(e) - shift log2(e), which could be one instruction,
// has the rounding of a large shift in the exponent, and threads have shifts of their own.
template <class T, class C>
__device__ C exp_for(C x, C shift = C(0)) {
  if constexpr (kIsNarrow<T>) {
    const float exponent = (x - shift) * 1.4426950408889634f;
#if defined(__CUDA_ARCH__)
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
    return result;
#else
    return std::exp2(exponent);
#endif
  } else {
    return std::exp(x - shift);
  }
}
template <class T, class C>
__device__ C quotient_for(C a, C b) {
#if defined(__CUDA_ARCH__)
  if constexpr (kIsNarrow<T>) return __fdividef(a, b);
#endif
  return a / b;
}

// 1 / (1 + exp(-x)); small, not rounded to 0, where x is very negative.
template <class C>
__device__ C sigmoid(C x) {
  const C e = std::exp(x < 0 ? x : -x), s = C(1) / (C(1) + e);
  return x < 0 ? e * s : s;
}
template <class T, class C>
__device__ C sigmoid_for(C x) {
  if constexpr (kIsNarrow<T>) return quotient_for<T>(C(1), C(1) + exp_for<T>(-x));
  return sigmoid(x);
}

}  // namespace transformer_ops::cuda
