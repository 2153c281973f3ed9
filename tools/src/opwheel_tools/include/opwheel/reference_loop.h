// An element-wise operator on the host, an element at a time, for operands of any dtype and strides. Right and not
// fast: what a new device's backend begins with, and what its kernels can be compared with.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>

#include "opwheel/elementwise.h"
#include "opwheel/functor.h"
#include "opwheel/indexing_32bit.h"

namespace opwheel {
namespace detail {

template <class C>
C load_element(DType dtype, const char* place) {
  switch (dtype) {
    case DType::float16:
      return static_cast<C>(static_cast<float>(*reinterpret_cast<const torch::headeronly::Half*>(place)));
    case DType::bfloat16:
      return static_cast<C>(static_cast<float>(*reinterpret_cast<const torch::headeronly::BFloat16*>(place)));
    case DType::float32:
      return static_cast<C>(*reinterpret_cast<const float*>(place));
    default:
      return static_cast<C>(*reinterpret_cast<const double*>(place));
  }
}

// Rounds once.
template <class C>
void store_element(DType dtype, char* place, C value) {
  switch (dtype) {
    case DType::float16:
      *reinterpret_cast<torch::headeronly::Half*>(place) = torch::headeronly::Half(static_cast<float>(value));
      break;
    case DType::bfloat16:
      *reinterpret_cast<torch::headeronly::BFloat16*>(place) = torch::headeronly::BFloat16(static_cast<float>(value));
      break;
    case DType::float32:
      *reinterpret_cast<float*>(place) = static_cast<float>(value);
      break;
    default:
      *reinterpret_cast<double*>(place) = static_cast<double>(value);
  }
}

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
