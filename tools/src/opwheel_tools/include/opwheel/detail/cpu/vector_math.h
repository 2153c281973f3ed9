// exp, sigmoid, tanh, erf and log1p on vectors of float, free of branches, and of double, of which tanh and erf are the
// C library's, for one instruction set.
//
// The polynomials are weighted least-squares fits, at Chebyshev nodes, of the functions named beside them. The errors
// are those that a test allows (tests/toolchain/test_vector_math.py), against float64: exp_of_negative(x) is exp(x) for
// x <= 0, within 2 units in the last place; zero below -86, where exp(x) is less than 4.5e-38. sigmoid(x) is 1 / (1 +
// exp(-x)), within 4 units where it is more than 4.5e-38, and zero below; tanh(x) is within 6 units. Of double both are
// within 2 units, subnormal results too. log1p(x) is log(1 + x) for x >= 0, within 2 units of double and 1 of float.
// exp_of_negative_for<T>() and sigmoid_for<T>() are the same for what is multiplied and rounded to T, and never
// subtracted from: for bfloat16 their relative error is up to 2^-12, a sixteenth of its unit in the last place. Of 1 -
// p, of p - 1, or of a sum with both signs, it may leave no digit: exp_of_negative() and sigmoid() are for those.
#pragma once

#include "opwheel/detail/cpu/convert.h"

namespace opwheel::cpu::OPWHEEL_ISA {
namespace {

using Floats = VectorOf<float>::type;
using Doubles = VectorOf<double>::type;
using Bits = VectorOf<uint32_t>::type;
using LongBits = VectorOf<uint64_t>::type;

inline Doubles each(Doubles x, double (*function)(double)) {
  for (int i = 0; i < kWidth / 8; ++i) x[i] = function(x[i]);
  return x;
}
constexpr double kRoundDouble = 6755399441055744.0;  // 1.5 * 2^52: a sum with it has an integer in its last bits

// 2^n of integers between -1022 and 1023.
inline Doubles power_of_two(Doubles n) {
  return reinterpret_cast<Doubles>((reinterpret_cast<LongBits>(n + kRoundDouble) + 1023) << 52);
}

// As for float, below. 2^n is multiplied in two parts: results below 2^-1022, down to the last subnormal one, are
// rounded once.
inline Doubles exp_of_negative(Doubles x) {
  const Doubles n = (x * 1.4426950408889634 + kRoundDouble) - kRoundDouble;
  const Doubles r = x - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10;
  Doubles q = r * 2.5024639266311035e-08 + 2.7631140150201755e-07;
  q = q * r + 2.7557507361975543e-06;
  q = q * r + 2.4801490307638598e-05;
  q = q * r + 1.9841269596971038e-04;
  q = q * r + 1.3888888946713305e-03;
  q = q * r + 8.3333333334515290e-03;
  q = q * r + 4.1666666666516600e-02;
  q = q * r + 1.6666666666666483e-01;
  q = q * r + 5.0000000000000120e-01;
  const Doubles value = r * r * q + r + 1.0;
  const Doubles half = (n * 0.5 + kRoundDouble) - kRoundDouble;
  const Doubles scaled = value * power_of_two(half) * power_of_two(n - half);
  return x < -746.0 ? Doubles{} : scaled;
}

// With e = exp(-|x|), which does not overflow, it is 1 / (1 + e) or e / (1 + e).
inline Doubles sigmoid(Doubles x) {
  const Doubles e = exp_of_negative(x < 0 ? x : -x), one = Doubles{} + 1.0;
  return (x < 0 ? e : one) / (one + e);
}

// With 1 + x = 2^e * m, sqrt(1/2) <= m < sqrt(2), it is e * ln 2 + log(m), and what the sum 1 + x is rounded by,
// divided by it. With s = (m - 1) / (m + 1), log(m) = log((1 + s) / (1 - s)) = 2 s + s^3 q(s^2).
inline Doubles log1p(Doubles x) {
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1, kOne = uint64_t{1023} << 52, kInteger = uint64_t{1075} << 52;
  const Doubles total = x + 1.0, lost = x - (total - 1.0);
  const LongBits bits = reinterpret_cast<LongBits>(total);
  const Doubles whole = reinterpret_cast<Doubles>((bits >> 52) | kInteger) - (4503599627370496.0 + 1023.0);
  const Doubles fraction = reinterpret_cast<Doubles>((bits & kFraction) | kOne);
  const auto is_upper = fraction > 1.4142135623730951;
  const Doubles m = is_upper ? fraction * 0.5 : fraction, e = is_upper ? whole + 1.0 : whole;
  const Doubles s = (m - 1.0) / (m + 1.0), t = s * s;
  Doubles q = t * 0.13087217031578989 + 0.13268712289333263;
  q = q * t + 0.15386242164348365;
  q = q * t + 0.18181795590761908;
  q = q * t + 0.22222222392222160;
  q = q * t + 0.28571428570801121;
  q = q * t + 0.40000000000000882;
  q = q * t + 0.66666666666666666;
  const Doubles small = s * t * q + (e * 1.90821492927058770002e-10 + lost / total);
  const Doubles result = e * 6.93147180369123816490e-01 + (2.0 * s + small);
  return x < __builtin_inf() ? result : x;
}

inline Doubles tanh(Doubles x) {
  return each(x, [](double value) { return __builtin_tanh(value); });
}
inline Doubles erf(Doubles x) {
  return each(x, [](double value) { return __builtin_erf(value); });
}

// exp(r) of what exp(x) = 2^n * exp(r) leaves, with n = round(x / ln 2), |r| <= ln(2) / 2 and exp(r) = 1 + r + r^2
// q(r); n is also in the last bits of `shifted`.
inline Floats exp_of_remainder(Floats x, Floats& shifted, Floats& n) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: a sum with it has n in its last bits
  shifted = x * 1.44269504f + kRound;
  n = shifted - kRound;
  const Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;  // ln 2 in two parts, the first with few bits
  Floats q = r * 1.38145965e-3f + 8.36871751e-3f;
  q = q * r + 4.16683890e-2f;
  q = q * r + 1.66665211e-1f;
  q = q * r + 4.99999940e-1f;
  return r * r * q + r + 1.0f;
}

#if defined(__AVX512F__)
inline Floats exp_of_negative(Floats x) {
  Floats shifted, n;
  const Floats value = exp_of_remainder(x, shifted, n);
  const __mmask16 is_large = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-86.0f), _CMP_NLT_UQ);  // or nan
  return _mm512_maskz_scalef_ps(is_large, value, n);
}

// A reciprocal of 14 bits and a step of Newton's method take less time than a division.
inline Floats sigmoid(Floats x) {
  const __m512 limit = _mm512_set1_ps(87.0f);  // nan, as the second operand, stays
  const Floats inside = _mm512_max_ps(-limit, _mm512_min_ps(limit, x));
  Floats shifted, n;
  const Floats value = exp_of_remainder(-inside, shifted, n);
  const Floats d = 1.0f + Floats(_mm512_scalef_ps(value, n)), y = _mm512_rcp14_ps(d);
  const Floats error = 1.0f - d * y;
  const __mmask16 is_large = _mm512_cmp_ps_mask(x, -limit, _CMP_NLT_UQ);
  return _mm512_maskz_mov_ps(is_large, y + y * error);
}

// 2^t = 2^floor(t) * 2^r with 0 <= r < 1, and 2^r a polynomial, with an error of 2^-13.
inline Floats exp2_short(Floats t) {
  const Floats r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF);
  Floats p = r * 7.70670700e-2f + 2.27644960e-1f;
  p = p * r + 6.95116790e-1f;
  p = p * r + 1.0f;
  return _mm512_scalef_ps(p, t);
}
#else
inline Floats exp_of_negative(Floats x) {
  Floats shifted, n;
  const Floats value = exp_of_remainder(x, shifted, n);
  const Floats scaled =
      reinterpret_cast<Floats>(reinterpret_cast<Bits>(value) + (reinterpret_cast<Bits>(shifted) << 23));
  return x != x ? x : x < -86.0f ? Floats{} : scaled;
}

// With e = exp(-|x|), which does not overflow, it is 1 / (1 + e) or e / (1 + e); the reciprocal is a cubic polynomial
// on [1, 2] and two steps of Newton's method, because a division takes as long as all the rest.
inline Floats sigmoid(Floats x) {
  const Floats e = exp_of_negative(x < 0 ? x : -x), d = 1.0f + e;
  Floats y = d * -2.21833467e-1f + 1.33100605f;
  y = y * d - 2.93931723f;
  y = y * d + 2.82841134f;
  y = y * (2.0f - d * y);
  y = y * (2.0f - d * y);
  return x < 0 ? e * y : y;
}
#endif

template <class T, class V>
inline V exp_of_negative_for(V x) {
#if defined(__AVX512F__)
  if constexpr (kIs<T, BFloat16> && kIs<V, Floats>) {
    const __mmask16 is_large = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-86.0f), _CMP_NLT_UQ);
    return _mm512_maskz_mov_ps(is_large, exp2_short(x * 1.44269504f));
  }
#endif
  return exp_of_negative(x);
}
template <class T, class V>
inline V sigmoid_for(V x) {
#if defined(__AVX512F__)
  if constexpr (kIs<T, BFloat16> && kIs<V, Floats>) return _mm512_rcp14_ps(1.0f + exp2_short(x * -1.44269504f));
#endif
  return sigmoid(x);
}

// Within 0.6: x + x^3 p(x^2), so that what is next to zero keeps all of its digits. Beyond: 2 sigmoid(2 x) - 1.
inline Floats tanh(Floats x) {
  const Floats s = x * x;
  Floats p = s * -5.89394523e-3f + 2.07946170e-2f;
  p = p * s - 5.37832938e-2f;
  p = p * s + 1.33319154e-1f;
  p = p * s - 3.33332986e-1f;
  return s < 0.36f ? x + x * s * p : 2.0f * sigmoid(2.0f * x) - 1.0f;
}

// Within 1: x (1 + p(x^2)). Beyond: 1 - exp(l(|x|) - |x|), from a fit of log(1 - erf(x)) + x; 1 from 4 on. The absolute
// error is 1.5e-7 at most.
inline Floats erf(Floats x) {
  const Floats t = x < 0 ? -x : x, s = x * x;
  Floats p = s * 7.88911930e-5f - 8.02084105e-4f;
  p = p * s + 5.18953521e-3f;
  p = p * s - 2.68544443e-2f;
  p = p * s + 1.12836003e-1f;
  p = p * s - 3.76126260e-1f;
  p = p * s + 1.28379166e-1f;
  const Floats four = Floats{} + 4.0f, u = t > four ? four : t;
  Floats l = u * -2.16868501e-5f + 4.41336364e-4f;
  l = l * u - 4.20456193e-3f;
  l = l * u + 2.52082571e-2f;
  l = l * u - 1.08418576e-1f;
  l = l * u - 6.33219898e-1f;
  l = l * u - 1.29578426e-1f;
  l = l * u + 1.88040227e-4f;
  const Floats outer = 1.0f - exp_of_negative(l - u);
  return t < 1.0f ? x + x * p : x < 0 ? -outer : x != x ? x : outer;
}

// In double, a half of the vector after the other.
inline Floats log1p(Floats x) {
  using Half = float __attribute__((vector_size(kWidth / 2)));
  Half halves[2];
  __builtin_memcpy(halves, &x, sizeof x);
  for (Half& half : halves) half = __builtin_convertvector(log1p(__builtin_convertvector(half, Doubles)), Half);
  __builtin_memcpy(&x, halves, sizeof x);
  return x;
}

}  // namespace
}  // namespace opwheel::cpu::OPWHEEL_ISA
