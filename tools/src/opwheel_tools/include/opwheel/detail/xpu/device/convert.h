// Conversions in integer arithmetic. An image that declares the SPIR-V capability Float64 or Float16 is refused by a
// GPU without it; with these, each image uses no other floating-point type than its own and float32. They are plain
// C++, so that a test can compare all of them with the host's conversions.
#pragma once

#include <cstdint>

namespace opwheel::xpu {

template <class To, class From>
To reinterpret(From from) {
  static_assert(sizeof(To) == sizeof(From),
                "opwheel: the bits of a value are another type's only where both have the same size; name such a type");
  return __builtin_bit_cast(To, from);
}

inline float from_bfloat16(uint16_t bits) { return reinterpret<float>(static_cast<uint32_t>(bits) << 16); }

// Rounds to nearest, ties to even; the carry of the addition turns what is too large into infinity.
inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = reinterpret<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  if (is_nan) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float from_float16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // a subnormal number or zero: exact
    return reinterpret<float>(sign | reinterpret<uint32_t>(magnitude));
  }
  const uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + (127 - 15);
  return reinterpret<float>(sign | wide << 23 | fraction << 13);
}

// float64 to float32, rounded to nearest, ties to even.
inline float from_float64(uint64_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits >> 32) & 0x80000000u;
  const int32_t exponent = static_cast<int32_t>(bits >> 52 & 0x7ffu);
  const uint64_t fraction = bits & 0xfffffffffffffu;
  if (exponent == 0x7ff) return reinterpret<float>(sign | 0x7f800000u | (fraction != 0 ? 0x400000u : 0u));
  const int32_t narrow = exponent - (1023 - 127);
  if (narrow >= 0xff) return reinterpret<float>(sign | 0x7f800000u);
  // A result below the normal range loses one more bit for each step, at last all of them.
  const int32_t shift = narrow > 0 ? 52 - 23 : 52 - 23 + 1 - narrow;
  if (shift > 53) return reinterpret<float>(sign);
  const uint64_t significand = fraction | uint64_t{1} << 52;
  const uint64_t kept = significand >> shift;
  const uint64_t lost = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  const uint32_t up = lost > half || (lost == half && (kept & 1u) != 0) ? 1 : 0;
  // kept has the leading bit of a normal number, which adds one to the exponent, as a carry of the rounding does.
  const uint32_t below = narrow > 0 ? static_cast<uint32_t>(narrow - 1) << 23 : 0;
  return reinterpret<float>(sign | (below + static_cast<uint32_t>(kept) + up));
}

}  // namespace opwheel::xpu
