// An element-wise operator on the host, an element at a time, for operands of any dtype and strides. Right and not
// fast: what a new device's backend begins with, and what its kernels can be compared with.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>

#include "opwheel/detail/dtype.h"
#include "opwheel/detail/elementwise.h"
#include "opwheel/detail/indexing_32bit.h"
#include "opwheel/functor.h"

namespace opwheel {

using HostElementTypes = ElementTypes<torch::headeronly::Half, torch::headeronly::BFloat16>;

// An element of any dtype, in the type that is computed in: float, or double for float64.
template <class C>
C load_element(DType dtype, const char* place) {
  return with_element_type<HostElementTypes>(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return static_cast<C>(static_cast<ComputeType<T>>(*reinterpret_cast<const T*>(place)));
  });
}
// Rounds once.
template <class C>
void store_element(DType dtype, char* place, C value) {
  with_element_type<HostElementTypes>(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    *reinterpret_cast<T*>(place) = static_cast<T>(static_cast<ComputeType<T>>(value));
  });
}

namespace detail {

// Everything is read before anything is written, because a result may be an input.
template <class C, class F>
void reference_loop(const ElementwisePlan& plan, const F& functor) {
  using Traits = FunctorTraits<F>;
  with_32bit_indexing(plan, [&](const ElementwisePlan& part) {
    const auto place = offset_calculator<Traits::kOperands>(part, 1);
    for (int64_t number = 0; number < part.numel; ++number) {
      uint32_t offsets[Traits::kOperands];
      place.get(static_cast<uint32_t>(number), offsets);
      C inputs[Traits::kInputs], results[Traits::kOutputs];
      for (int i = 0; i < Traits::kInputs; ++i) {
        const auto& input = part.input(i);
        inputs[i] = load_element<C>(input.info.dtype, input.data + offsets[Traits::kOutputs + i]);
      }
      apply(functor, inputs, results);
      for (int i = 0; i < Traits::kOutputs; ++i) {
        store_element(part.output(i).info.dtype, part.output(i).data + offsets[i], results[i]);
      }
    }
  });
}

}  // namespace detail

// Computes Op's functor for every element of the plan; float16 and bfloat16 in float32.
template <class Op, class... Params>
void reference_loop(const ElementwisePlan& plan, Params... params) {
  if (plan.dtype == DType::float64) {
    detail::reference_loop<double>(plan, typename Op::template Functor<double>{params...});
  } else {
    detail::reference_loop<float>(plan, typename Op::template Functor<float>{params...});
  }
}

}  // namespace opwheel
