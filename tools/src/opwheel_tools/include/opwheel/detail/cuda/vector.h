// The types of elements, 16 bytes of them at a time, and a functor applied to those.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>

#include "opwheel/detail/dtype.h"
#include "opwheel/functor.h"

namespace opwheel::cuda {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;

using StoredTypes = ElementTypes<Half, BFloat16>;

using opwheel::apply;

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

}  // namespace opwheel::cuda
