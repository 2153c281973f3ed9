// The dtypes that an image can be compiled for: how an element lies in memory and what it is computed in.
#pragma once

#include <sycl/sycl.hpp>

#include "convert.h"
#include "walk.h"

namespace muladd::xpu::element {

struct float16 {
  using Storage = sycl::half;
  using Compute = float;
  static constexpr Code code = Code::float16;
  static Compute load(Storage value) { return value; }
  static Storage store(Compute value) { return value; }
};

struct bfloat16 {
  using Storage = uint16_t;
  using Compute = float;
  static constexpr Code code = Code::bfloat16;
  static Compute load(Storage value) { return from_bfloat16(value); }
  static Storage store(Compute value) { return to_bfloat16(value); }
};

struct float32 {
  using Storage = float;
  using Compute = float;
  static constexpr Code code = Code::float32;
  static Compute load(Storage value) { return value; }
  static Storage store(Compute value) { return value; }
};

struct float64 {
  using Storage = double;
  using Compute = double;
  static constexpr Code code = Code::float64;
  static Compute load(Storage value) { return value; }
  static Storage store(Compute value) { return value; }
};

// An element of whatever dtype, in the compute type of the image's own.
template <class Own>
typename Own::Compute load_as(Code code, const char* address) {
  if (code == Own::code) return Own::load(*reinterpret_cast<const typename Own::Storage*>(address));
  switch (code) {
    case Code::float16:
      return from_float16(*reinterpret_cast<const uint16_t*>(address));
    case Code::bfloat16:
      return from_bfloat16(*reinterpret_cast<const uint16_t*>(address));
    case Code::float32:
      return *reinterpret_cast<const float*>(address);
    default:
      return from_float64(*reinterpret_cast<const uint64_t*>(address));
  }
}

}  // namespace muladd::xpu::element
