// exp, sigmoid and erf on vectors of float, free of branches and divisions, and on vectors of double as the C library
// has them. Included by vectorized_rows.h, inside the namespace of one instruction set.
//
// The polynomials are weighted least-squares fits, at Chebyshev nodes, of the functions named beside them. The errors
// are those that tests/toolchain/test_vector_math.py allows, against float64.

using Floats = VectorOf<float>::type;
using Doubles = VectorOf<double>::type;
using Bits = VectorOf<uint32_t>::type;

inline Doubles each(Doubles x, double (*function)(double)) {
  for (int i = 0; i < kWidth / 8; ++i) x[i] = function(x[i]);
  return x;
}
inline Doubles exp_of_negative(Doubles x) {
  return each(x, [](double value) { return __builtin_exp(value); });
}
inline Doubles sigmoid(Doubles x) { return 1.0 / (1.0 + exp_of_negative(-x)); }
inline Doubles erf(Doubles x) {
  return each(x, [](double value) { return __builtin_erf(value); });
}

// exp(x) for x <= 0, within 2 units in the last place; zero below -86, where exp(x) is less than 4.5e-38.
// exp(x) = 2^n * exp(r) with n = round(x / ln 2), |r| <= ln(2) / 2, and exp(r) = 1 + r + r^2 q(r).
inline Floats exp_of_negative(Floats x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: a sum with it has n in its last bits
  const Floats shifted = x * 1.44269504f + kRound;
  const Floats n = shifted - kRound;
  const Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;  // ln 2 in two parts, the first with few bits
  Floats q = r * 1.38145965e-3f + 8.36871751e-3f;
  q = q * r + 4.16683890e-2f;
  q = q * r + 1.66665211e-1f;
  q = q * r + 4.99999940e-1f;
  const Floats value = r * r * q + r + 1.0f;
  const Floats scaled =
      reinterpret_cast<Floats>(reinterpret_cast<Bits>(value) + (reinterpret_cast<Bits>(shifted) << 23));
  return x != x ? x : x < -86.0f ? Floats{} : scaled;
}

// 1 / (1 + exp(-x)), within 4 units in the last place where it is more than 4.5e-38, and zero below. With e =
// exp(-|x|), which does not overflow, it is 1 / (1 + e) or e / (1 + e); the reciprocal is a cubic polynomial on [1, 2]
// and two steps of Newton's method, because a division takes as long as all the rest.
inline Floats sigmoid(Floats x) {
  const Floats e = exp_of_negative(x < 0 ? x : -x), d = 1.0f + e;
  Floats y = d * -2.21833467e-1f + 1.33100605f;
  y = y * d - 2.93931723f;
  y = y * d + 2.82841134f;
  y = y * (2.0f - d * y);
  y = y * (2.0f - d * y);
  return x < 0 ? e * y : y;
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
