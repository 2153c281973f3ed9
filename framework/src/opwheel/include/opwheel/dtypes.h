// Every dtype of PyTorch's, sets of them, and code for the C++ type of one that is known at run time.
#pragma once

#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "opwheel/tensor.h"

namespace opwheel {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;
using torch::headeronly::ScalarType;

// The number that PyTorch's C functions have for it.
inline int32_t code_of(ScalarType dtype) {
  return torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
}
inline ScalarType scalar_type(int32_t code) {
  return torch::stable::detail::to<ScalarType>(torch::stable::detail::from(code));
}
inline ScalarType dtype_of(const Tensor& tensor) {
  int32_t code = 0;
  OPWHEEL_SHIM(aoti_torch_get_dtype(tensor.handle(), &code));
  return scalar_type(code);
}

// A set of dtypes: `floating`, `integral`, or DTypes{ScalarType::Char, ScalarType::Byte}; united by `|`.
struct DTypes {
  uint64_t bits = 0;
  constexpr DTypes() = default;
  constexpr DTypes(std::initializer_list<ScalarType> dtypes) {
    for (ScalarType dtype : dtypes) bits |= uint64_t{1} << static_cast<int>(dtype);
  }
  constexpr DTypes(ScalarType dtype) : DTypes({dtype}) {}  // NOLINT: a dtype is a set of one
  constexpr explicit DTypes(uint64_t bits) : bits(bits) {}
  constexpr operator uint64_t() const { return bits; }  // NOLINT: as a template argument
  constexpr bool has(ScalarType dtype) const { return (bits >> static_cast<int>(dtype) & 1) != 0; }
  constexpr DTypes operator|(DTypes other) const {
    other.bits |= bits;
    return other;
  }
  std::string text() const {
    std::string names;
    for (int i = 0; i < 64; ++i) {
      if ((bits >> i & 1) == 0) continue;
      names += (names.empty() ? "" : ", ") + dtype_name(code_of(static_cast<ScalarType>(i)));
    }
    return names;
  }
};

inline constexpr DTypes floating{ScalarType::Half, ScalarType::BFloat16, ScalarType::Float, ScalarType::Double};
inline constexpr DTypes integral{ScalarType::Byte, ScalarType::Char, ScalarType::Short, ScalarType::Int,
                                 ScalarType::Long};
inline constexpr DTypes every_dtype{DTypes(floating | integral | DTypes(ScalarType::Bool))};

// The type to add up many values of T in: float for float16, bfloat16 and float32, int64_t for integers.
template <class T>
struct AccumulateOf {
  using type = float;
};
template <>
struct AccumulateOf<double> {
  using type = double;
};
template <>
struct AccumulateOf<int64_t> {
  using type = int64_t;
};
template <>
struct AccumulateOf<int32_t> : AccumulateOf<int64_t> {};
template <>
struct AccumulateOf<int16_t> : AccumulateOf<int64_t> {};
template <>
struct AccumulateOf<int8_t> : AccumulateOf<int64_t> {};
template <>
struct AccumulateOf<uint8_t> : AccumulateOf<int64_t> {};
template <>
struct AccumulateOf<bool> : AccumulateOf<int64_t> {};
template <class T>
using Accumulate = typename AccumulateOf<T>::type;

// Calls function.template operator()<T>() with the C++ type of a dtype: dispatch(dtype, [&]<class T>() { ... }).
// Instantiates it for the dtypes of `set` alone: a DTypes, as a number, because nvcc 13.0 gives the C++ compiler wrong
// code for a template parameter of a class type.
template <uint64_t set = floating, class Function>
void dispatch(ScalarType dtype, const Function& function) {
#define OPWHEEL_DETAIL_CASE(name, T)                                                                              \
  case ScalarType::name:                                                                                          \
    if constexpr (DTypes(set).has(ScalarType::name)) return static_cast<void>(function.template operator()<T>()); \
    break;
  switch (dtype) {
    OPWHEEL_DETAIL_CASE(Half, Half)
    OPWHEEL_DETAIL_CASE(BFloat16, BFloat16)
    OPWHEEL_DETAIL_CASE(Float, float)
    OPWHEEL_DETAIL_CASE(Double, double)
    OPWHEEL_DETAIL_CASE(Byte, uint8_t)
    OPWHEEL_DETAIL_CASE(Char, int8_t)
    OPWHEEL_DETAIL_CASE(Short, int16_t)
    OPWHEEL_DETAIL_CASE(Int, int32_t)
    OPWHEEL_DETAIL_CASE(Long, int64_t)
    OPWHEEL_DETAIL_CASE(Bool, bool)
    default:
      break;
  }
#undef OPWHEEL_DETAIL_CASE
  fail("there is no code for ", dtype_name(code_of(dtype)), ", only for ", DTypes(set).text(),
       "; pass one of those, converted with .to(...) where it is a tensor");
}

}  // namespace opwheel
