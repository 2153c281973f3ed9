// Every dtype of PyTorch's that a C++ kernel can be given, sets of them, and code for the C++ type of one that is known
// at run time.
#pragma once

#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>

#include "opwheel/detail/tensor.h"

// Their names and C++ types. PyTorch's C functions have no numbers for the others: quantized ones, bits, and integers
// of less than a byte.
#define OPWHEEL_DETAIL_DTYPES(_)                         \
  _(Half, Half)                                          \
  _(BFloat16, BFloat16)                                  \
  _(Float, float)                                        \
  _(Double, double)                                      \
  _(Byte, uint8_t)                                       \
  _(Char, int8_t)                                        \
  _(Short, int16_t)                                      \
  _(Int, int32_t)                                        \
  _(Long, int64_t)                                       \
  _(Bool, bool)                                          \
  _(UInt16, uint16_t)                                    \
  _(UInt32, uint32_t)                                    \
  _(UInt64, uint64_t)                                    \
  _(ComplexHalf, torch::headeronly::complex<Half>)       \
  _(ComplexFloat, torch::headeronly::complex<float>)     \
  _(ComplexDouble, torch::headeronly::complex<double>)   \
  _(Float8_e5m2, torch::headeronly::Float8_e5m2)         \
  _(Float8_e4m3fn, torch::headeronly::Float8_e4m3fn)     \
  _(Float8_e5m2fnuz, torch::headeronly::Float8_e5m2fnuz) \
  _(Float8_e4m3fnuz, torch::headeronly::Float8_e4m3fnuz) \
  OPWHEEL_DETAIL_DTYPES_OF_2_11(_)
#if OPWHEEL_DETAIL_HAS_DTYPES_OF_2_11
#define OPWHEEL_DETAIL_DTYPES_OF_2_11(_)               \
  _(Float8_e8m0fnu, torch::headeronly::Float8_e8m0fnu) \
  _(Float4_e2m1fn_x2, torch::headeronly::Float4_e2m1fn_x2)
#else
#define OPWHEEL_DETAIL_DTYPES_OF_2_11(_)
#endif

namespace opwheel {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;
using torch::headeronly::ScalarType;

namespace detail {

inline constexpr ScalarType kDTypes[] = {
#define OPWHEEL_DETAIL_DTYPE(name, T) ScalarType::name,
    OPWHEEL_DETAIL_DTYPES(OPWHEEL_DETAIL_DTYPE)
#undef OPWHEEL_DETAIL_DTYPE
};

}  // namespace detail

// The number that PyTorch's C functions have for it.
inline int32_t code_of(ScalarType dtype) {
  return torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
}

namespace detail {

// Those of kDTypes, asked for once per process.
inline const auto& dtype_codes() {
  static const auto codes = [] {
    std::array<int32_t, std::size(kDTypes)> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = code_of(kDTypes[i]);
    return all;
  }();
  return codes;
}

}  // namespace detail

// The opposite. Throws, naming the dtype, where C++ has none for the number.
inline ScalarType scalar_type(int32_t code) {
  const auto& codes = detail::dtype_codes();
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] == code) return detail::kDTypes[i];
  }
  fail("a tensor is of ", dtype_name(code), "; convert it with .to(...) or .view(...)");
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
  // Of the number that PyTorch's C functions have for it, whatever dtype that is.
  bool has_code(int32_t code) const {
    const auto& codes = detail::dtype_codes();
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (codes[i] == code) return has(detail::kDTypes[i]);
    }
    return false;
  }
  constexpr DTypes operator|(DTypes other) const {
    other.bits |= bits;
    return other;
  }
  std::string text() const {
    std::string names;
    for (ScalarType dtype : detail::kDTypes) {
      if (has(dtype)) names += (names.empty() ? "" : ", ") + dtype_name(code_of(dtype));
    }
    return names;
  }
};

inline constexpr DTypes floating{ScalarType::Half, ScalarType::BFloat16, ScalarType::Float, ScalarType::Double};
inline constexpr DTypes integral{ScalarType::Byte, ScalarType::Char, ScalarType::Short, ScalarType::Int,
                                 ScalarType::Long};
// Both, and bool. Complex numbers, float8 and the unsigned integers of more than a byte are in none of these sets.
inline constexpr DTypes every_dtype{DTypes(floating | integral | DTypes(ScalarType::Bool))};

// The type to add up many values of T in: float for float16, bfloat16, float32 and those of 8 bits, int64_t for
// integers and bool, uint64_t for uint64, and for a complex number one of the type for its parts.
template <class T>
struct AccumulateOf {
  static_assert(std::is_convertible_v<T, float>,
                "opwheel: numbers of this type cannot be added up; convert them first");
  using type = std::conditional_t<std::is_integral_v<T>, int64_t, float>;
};
template <>
struct AccumulateOf<double> {
  using type = double;
};
template <>
struct AccumulateOf<uint64_t> {
  using type = uint64_t;
};
template <class T>
struct AccumulateOf<torch::headeronly::complex<T>> {
  using type = torch::headeronly::complex<typename AccumulateOf<T>::type>;
};
template <class T>
using Accumulate = typename AccumulateOf<T>::type;

namespace detail {

// The first dtype of a set for which there is no C++ type; Undefined if there is none.
constexpr ScalarType without_type(DTypes set) {
  for (ScalarType dtype : kDTypes) set.bits &= ~(uint64_t{1} << static_cast<int>(dtype));
  return set.bits == 0 ? ScalarType::Undefined : static_cast<ScalarType>(std::countr_zero(set.bits));
}
template <ScalarType dtype>
constexpr void refuse_without_type() {
  static_assert(dtype == ScalarType::Undefined,
                "opwheel: a kernel cannot be given tensors of a dtype that this set has, so that dispatch() has no C++ "
                "type for it; leave it out. The compiler names the dtype (Float8_e8m0fnu and Float4_e2m1fn_x2 need "
                "torch_target=\"2.11\" in setup.py)");
}

}  // namespace detail

// Calls function.template operator()<T>() with the C++ type of a dtype: dispatch(dtype, [&]<class T>() { ... }).
// Instantiates it for the dtypes of `set` alone: a DTypes, as a number, because nvcc 13.0 gives the C++ compiler wrong
// code for a template parameter of a class type.
template <uint64_t set = floating, class Function>
void dispatch(ScalarType dtype, const Function& function) {
  detail::refuse_without_type<detail::without_type(DTypes(set))>();
#define OPWHEEL_DETAIL_CASE(name, T)                                                                              \
  case ScalarType::name:                                                                                          \
    if constexpr (DTypes(set).has(ScalarType::name)) return static_cast<void>(function.template operator()<T>()); \
    break;
  switch (dtype) {
    OPWHEEL_DETAIL_DTYPES(OPWHEEL_DETAIL_CASE)
    default:
      break;
  }
#undef OPWHEEL_DETAIL_CASE
  fail("there is no code for ", dtype_name(code_of(dtype)), ", only for ", DTypes(set).text(),
       "; pass one of those, converted with .to(...) where it is a tensor");
}

}  // namespace opwheel
