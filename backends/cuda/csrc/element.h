// Elements: their types, 16 bytes of them at a time, and a functor of muladd/arithmetic.h applied to them.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "muladd/arithmetic.h"

// Arrays stay in registers only when every index into them is a constant.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define OPWHEEL_UNROLL _Pragma("unroll")
#else
#define OPWHEEL_UNROLL
#endif

namespace muladd::cuda {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;

// float16 and bfloat16 compute in float32 and round once.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

// What a functor takes and gives, from the type of its operator().
template <class Call>
struct CallTraits;
template <class F, class C, class... Args>
struct CallTraits<C (F::*)(Args...) const> {
  using Compute = C;
  static constexpr int kInputs = sizeof...(Args);
  static constexpr int kOutputs = 1;
};
template <class F, class C, class... Args>
struct CallTraits<Pair<C> (F::*)(Args...) const> {
  using Compute = C;
  static constexpr int kInputs = sizeof...(Args);
  static constexpr int kOutputs = 2;
};
template <class F>
struct FunctorTraits : CallTraits<decltype(&F::operator())> {
  static constexpr int kOperands = FunctorTraits::kOutputs + FunctorTraits::kInputs;
};

namespace detail {

template <class C>
OPWHEEL_HOST_DEVICE void unpack(C result, C (&outputs)[1]) {
  outputs[0] = result;
}
template <class C>
OPWHEEL_HOST_DEVICE void unpack(Pair<C> result, C (&outputs)[2]) {
  outputs[0] = result.first;
  outputs[1] = result.second;
}

template <class F, class C, std::size_t... I, int kOutputs>
OPWHEEL_HOST_DEVICE void call(const F& functor, const C* inputs, C (&outputs)[kOutputs], std::index_sequence<I...>) {
  unpack(functor(inputs[I]...), outputs);
}

}  // namespace detail

// One element of each operand.
template <class F, class C, int kInputs, int kOutputs>
OPWHEEL_HOST_DEVICE void apply(const F& functor, const C (&inputs)[kInputs], C (&outputs)[kOutputs]) {
  detail::call(functor, inputs, outputs, std::make_index_sequence<kInputs>{});
}

// What one instruction loads or stores.
template <class T>
struct alignas(16) Vector {
  static constexpr int kLanes = 16 / sizeof(T);
  T lanes[kLanes];
};

template <class F, class T, int kInputs, int kOutputs>
OPWHEEL_HOST_DEVICE void apply(const F& functor, const Vector<T> (&inputs)[kInputs], Vector<T> (&outputs)[kOutputs]) {
  using C = ComputeType<T>;
  OPWHEEL_UNROLL
  for (int lane = 0; lane < Vector<T>::kLanes; ++lane) {
    C arguments[kInputs], results[kOutputs];
    OPWHEEL_UNROLL
    for (int i = 0; i < kInputs; ++i) arguments[i] = static_cast<C>(inputs[i].lanes[lane]);
    apply(functor, arguments, results);
    OPWHEEL_UNROLL
    for (int i = 0; i < kOutputs; ++i) outputs[i].lanes[lane] = static_cast<T>(results[i]);
  }
}

}  // namespace muladd::cuda
