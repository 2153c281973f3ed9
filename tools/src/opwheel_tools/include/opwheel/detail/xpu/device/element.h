// The dtypes that an image can be compiled for: how an element lies in memory and what it is computed in.
#pragma once

#include <sycl/sycl.hpp>

#include "opwheel/detail/dtype.h"
#include "opwheel/detail/xpu/device/convert.h"

namespace opwheel::xpu {

// Stored in a type that the compiler converts.
template <class Stored, class Computed, DType own>
struct Native {
  using Storage = Stored;
  using Compute = Computed;
  static constexpr DType dtype = own;
  static Compute load(Storage value) { return value; }
  static Storage store(Compute value) { return value; }
};
using float16 = Native<sycl::half, float, DType::float16>;
using float32 = Native<float, float, DType::float32>;
using float64 = Native<double, double, DType::float64>;

struct bfloat16 {
  using Storage = uint16_t;
  using Compute = float;
  static constexpr DType dtype = DType::bfloat16;
  static Compute load(Storage value) { return from_bfloat16(value); }
  static Storage store(Compute value) { return to_bfloat16(value); }
};

namespace detail {

// Elements in an image of another dtype, which must not use their types (opwheel/detail/xpu/device/convert.h).
struct OtherFloat16 {
  using Storage = uint16_t;
  static float load(Storage value) { return from_float16(value); }
};
struct OtherFloat64 {
  using Storage = uint64_t;
  static float load(Storage value) { return from_float64(value); }
};
using OtherTypes = ElementTypes<OtherFloat16, bfloat16, float32, OtherFloat64>;

}  // namespace detail

// An element of whatever dtype, in the compute type of the image's own.
template <class Own>
typename Own::Compute load_as(DType dtype, const char* address) {
  if (dtype == Own::dtype) return Own::load(*reinterpret_cast<const typename Own::Storage*>(address));
  return with_element_type<detail::OtherTypes>(dtype, [&](auto type) -> typename Own::Compute {
    using E = typename decltype(type)::type;
    return E::load(*reinterpret_cast<const typename E::Storage*>(address));
  });
}

}  // namespace opwheel::xpu
