// The dtypes that kernels compute with, and code for the C++ type of one that is known at run time. Plain, because code
// for every instruction set and every device includes it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "opwheel/functor.h"

namespace opwheel {

enum class DType : uint8_t { float16, bfloat16, float32, float64, unsupported };

// The type that elements of type T are computed in: float16 and bfloat16 in float32, rounded once.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The types that stand for the dtypes in one kind of code.
template <class Float16, class BFloat16, class Float32 = float, class Float64 = double>
struct ElementTypes {
  using float16 = Float16;
  using bfloat16 = BFloat16;
  using float32 = Float32;
  using float64 = Float64;
};

// A type as an argument.
template <class T>
struct TypeArgument {
  using type = T;
};

// Calls function(TypeArgument<T>()), where T is what stands for a supported dtype among Types, an ElementTypes, and
// returns its result. Always inlined (opwheel/detail/cpu/loop.h).
template <class Types, class Function>
OPWHEEL_HOST_DEVICE decltype(auto) with_element_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::float16:
      return function(TypeArgument<typename Types::float16>());
    case DType::bfloat16:
      return function(TypeArgument<typename Types::bfloat16>());
    case DType::float32:
      return function(TypeArgument<typename Types::float32>());
    default:
      return function(TypeArgument<typename Types::float64>());
  }
}

}  // namespace opwheel
