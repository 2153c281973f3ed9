// The dtypes that an image can be compiled for: how an element lies in memory and what it is computed in.
#pragma once

#include <sycl/sycl.hpp>

#include "opwheel/dtype.h"
#include "opwheel/xpu/device/convert.h"

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

// An element of whatever dtype, in the compute type of the image's own.
template <class Own>
typename Own::Compute load_as(DType dtype, const char* address) {
  if (dtype == Own::dtype) return Own::load(*reinterpret_cast<const typename Own::Storage*>(address));
  switch (dtype) {
    case DType::float16:
      return from_float16(*reinterpret_cast<const uint16_t*>(address));
    case DType::bfloat16:
      return from_bfloat16(*reinterpret_cast<const uint16_t*>(address));
    case DType::float32:
      return *reinterpret_cast<const float*>(address);
    default:
      return from_float64(*reinterpret_cast<const uint64_t*>(address));
  }
}

}  // namespace opwheel::xpu
