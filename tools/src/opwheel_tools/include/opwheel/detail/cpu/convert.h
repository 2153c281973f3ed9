// Converts between the type that elements have in memory and the type they are computed in: single ones, blocks and
// registers of them; and non-temporal stores. For one instruction set, with internal linkage
// (opwheel/detail/cpu/loop.h).
#pragma once

#ifndef OPWHEEL_ISA
#error "opwheel: define OPWHEEL_ISA, the name of the instruction set that this file is compiled for, in front of it"
#endif

#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "opwheel/detail/dtype.h"

namespace opwheel::cpu::OPWHEEL_ISA {
namespace {

// Stored as its 16 bits: the conversions below are the only arithmetic there is.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <class A, class B>
constexpr bool kIs = false;
template <class A>
constexpr bool kIs<A, A> = true;

using StoredTypes = ElementTypes<Half, BFloat16>;

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(BFloat16 value) { return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16); }
inline float widen(Half value) {
#if defined(__F16C__)
  return _cvtsh_ss(value.bits);
#elif defined(__aarch64__)
  return static_cast<float>(__builtin_bit_cast(__fp16, value.bits));
#else
  // The exponent is moved into place by a multiplication, which also normalises subnormal numbers.
  const uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  float result = __builtin_bit_cast(float, magnitude) * 0x1p112f;
  if (magnitude >= 0x0f800000u) result = __builtin_bit_cast(float, magnitude | 0x7f800000u);  // infinity and NaN
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, result) | (value.bits & 0x8000u) << 16);
#endif
}

// To the nearest, ties to even. AVX-512's own bfloat16 instruction is not used: it flushes subnormal numbers to zero.
inline BFloat16 to_bfloat16(float value) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return {__builtin_bit_cast(uint16_t, vcvth_bf16_f32(value))};  // a nan keeps its sign and its upper bits
#else
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded)};
#endif
}
inline Half to_half(float value) {
#if defined(__F16C__)
  return {static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT))};
#elif defined(__aarch64__)
  return {__builtin_bit_cast(uint16_t, static_cast<__fp16>(value))};
#else
  const uint32_t bits = __builtin_bit_cast(uint32_t, value), magnitude = bits & 0x7fffffffu;
  uint32_t half = 0x7e00u;  // NaN
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 makes the processor round to the last place that is left.
    half = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000u;
  } else if (magnitude <= 0x7f800000u) {
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    if (half > 0x7c00u) half = 0x7c00u;
  }
  return {static_cast<uint16_t>(half | (bits >> 16 & 0x8000u))};
#endif
}
template <class T>
inline T narrow(ComputeType<T> value) {
  if constexpr (kIs<T, BFloat16>) {
    return to_bfloat16(value);
  } else if constexpr (kIs<T, Half>) {
    return to_half(value);
  } else {
    return value;
  }
}

template <class T, class C>
inline void widen_block(C* block, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) block[i] = static_cast<C>(widen(from[i]));
}
template <class T, class C>
inline void narrow_block(T* to, const C* block, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = narrow<T>(block[i]);
}

#if defined(__AVX512F__)
inline void widen_block(float* block, const Half* from, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(block + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
  }
  for (; i < n; ++i) block[i] = widen(from[i]);
}
inline void narrow_block(Half* to, const float* block, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i bits = _mm512_cvtps_ph(_mm512_loadu_ps(block + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), bits);
  }
  for (; i < n; ++i) to[i] = narrow<Half>(block[i]);
}
#elif defined(__F16C__)
inline void widen_block(float* block, const Half* from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(block + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < n; ++i) block[i] = widen(from[i]);
}
inline void narrow_block(Half* to, const float* block, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(block + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
  for (; i < n; ++i) to[i] = narrow<Half>(block[i]);
}
#endif

// A vector of C as wide as this instruction set's registers, and its non-temporal store, to an aligned address.
#if defined(__AVX512F__)
constexpr int64_t kWidth = 64;
inline void stream(void* to, __m512i value) { _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value); }
#elif defined(__AVX2__)
constexpr int64_t kWidth = 32;
inline void stream(void* to, __m256i value) { _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value); }
#elif defined(__SSE2__)
constexpr int64_t kWidth = 16;
inline void stream(void* to, __m128i value) { _mm_stream_si128(reinterpret_cast<__m128i*>(to), value); }
#else
constexpr int64_t kWidth = 16;
template <class V>
inline void stream(void* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}
#endif
template <class C, int64_t width = kWidth>
struct VectorOf {
  typedef C type __attribute__((vector_size(width)));
};
// All lanes the same. A zero keeps its sign, which it would lose in V{} + value.
template <class V, class C>
inline V splat(C value) {
  return value - V{};
}
#if defined(__SSE2__)
template <class V>
inline void stream_vector(void* to, V value) {
  typedef long long Bits __attribute__((vector_size(kWidth)));
  stream(to, reinterpret_cast<Bits>(value));
}
#else
template <class V>
inline void stream_vector(void* to, V value) {
  stream(to, value);
}
#endif
template <class V>
inline V load_vector(const void* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <class V>
inline void store_vector(void* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// Whether a 16-bit type has widen_vector() and narrow_vector(), which take as many elements as fit into a vector of
// what they are computed in.
template <class T>
constexpr bool kHasVectors = false;
inline VectorOf<float>::type widen_vector(const float* from) { return load_vector<VectorOf<float>::type>(from); }
inline VectorOf<double>::type widen_vector(const double* from) { return load_vector<VectorOf<double>::type>(from); }

#if defined(__AVX2__) || defined(__aarch64__)
typedef uint16_t Shorts __attribute__((vector_size(kWidth / 2)));
typedef uint32_t Words __attribute__((vector_size(kWidth)));
template <>
constexpr bool kHasVectors<BFloat16> = true;
template <>
constexpr bool kHasVectors<Half> = true;
#endif

#if defined(__aarch64__)
// NEON. Every processor has the conversions of float16; those to bfloat16 are six instructions, or one where it has
// that (FEAT_BF16, which rounds to the nearest, ties to even, and keeps subnormal numbers).
inline VectorOf<float>::type widen_vector(const BFloat16* from) {
  const auto words = reinterpret_cast<uint16x4_t>(load_vector<Shorts>(from));
  return reinterpret_cast<VectorOf<float>::type>(vshll_n_u16(words, 16));
}
inline VectorOf<float>::type widen_vector(const Half* from) {
  return vcvt_f32_f16(reinterpret_cast<float16x4_t>(load_vector<Shorts>(from)));
}
inline Shorts to_half(VectorOf<float>::type value) { return reinterpret_cast<Shorts>(vcvt_f16_f32(value)); }
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
inline Shorts to_bfloat16(VectorOf<float>::type value) { return reinterpret_cast<Shorts>(vcvt_bf16_f32(value)); }
#else
// As to_bfloat16() of one: 1 where the last bit that stays is odd, and 0x7fff, are added, and upper halves kept.
inline Shorts to_bfloat16(VectorOf<float>::type value) {
  const auto bits = reinterpret_cast<uint32x4_t>(value);
  const uint32x4_t tied = vsraq_n_u32(bits, vshlq_n_u32(bits, 15), 31);
  const uint16x4_t rounded = vaddhn_u32(tied, vdupq_n_u32(0x7fff));
  const uint16x4_t is_number = vmovn_u32(vceqq_f32(value, value));
  return reinterpret_cast<Shorts>(vbsl_u16(is_number, rounded, vdup_n_u16(0x7fc0)));
}
#endif
// Blocks of 16-bit elements, a register at a time.
template <class T>
inline void widen_block(float* block, const T* from, int64_t n)
  requires kHasVectors<T>
{
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) store_vector(block + i, widen_vector(from + i));
  for (; i < n; ++i) block[i] = widen(from[i]);
}
#endif

#if defined(__AVX2__)
// Rounding as to_bfloat16() does it for one. GCC's own conversions of vectors of integers take several instructions.
#if defined(__AVX512F__)
// Where the 16 words of a half register go, by vpermw: into the upper halves of 32-bit lanes, and back.
inline __m512i upper_halves() {
  return _mm512_setr_epi32(0, 1 << 16, 2 << 16, 3 << 16, 4 << 16, 5 << 16, 6 << 16, 7 << 16, 8 << 16, 9 << 16, 10 << 16,
                           11 << 16, 12 << 16, 13 << 16, 14 << 16, 15 << 16);
}
inline __m512i from_upper_halves() {
  constexpr auto kPair = [](int lane) { return (2 * lane + 3) << 16 | (2 * lane + 1); };
  return _mm512_setr_epi32(kPair(0), kPair(2), kPair(4), kPair(6), kPair(8), kPair(10), kPair(12), kPair(14), 0, 0, 0,
                           0, 0, 0, 0, 0);
}
template <class T>
inline VectorOf<float>::type widen_words(__m256i words) {
  if constexpr (kIs<T, Half>) return _mm512_cvtph_ps(words);
  return _mm512_castsi512_ps(
      _mm512_maskz_permutexvar_epi16(0xaaaaaaaau, upper_halves(), _mm512_castsi256_si512(words)));
}
inline VectorOf<float>::type widen_vector(const BFloat16* from) {
  return widen_words<BFloat16>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
// bits | (bits >> 16 & 1): a tie above an odd upper half becomes more than a tie. 0x7fff more, and the upper half is
// the nearest bfloat16, ties to even.
inline __m512i with_ties_to_even(__m512i bits) {
  return _mm512_ternarylogic_epi32(bits, _mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1), 0xf8);
}
inline Shorts upper_halves_of(VectorOf<float>::type value) {
  const __m512i words = _mm512_permutexvar_epi16(from_upper_halves(), _mm512_castps_si512(value));
  return reinterpret_cast<Shorts>(_mm512_castsi512_si256(words));
}
// To the nearest bfloat16, in the upper half of each lane, with something of its bits in the lower one; nan stays nan.
inline VectorOf<float>::type rounded_or_nan(VectorOf<float>::type value) {
  const __m512i bits = _mm512_castps_si512(value), nan = _mm512_set1_epi32(0x7fc00000);
  const __mmask16 is_number = _mm512_cmp_ps_mask(value, value, _CMP_ORD_Q);
  return _mm512_castsi512_ps(_mm512_mask_add_epi32(nan, is_number, with_ties_to_even(bits), _mm512_set1_epi32(0x7fff)));
}
inline Shorts to_bfloat16(VectorOf<float>::type value) { return upper_halves_of(rounded_or_nan(value)); }
// Twice as many elements as a register has lanes, without moving them: those at even places, and those at odd ones.
inline VectorOf<float>::type widen_even(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
inline VectorOf<float>::type widen_odd(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536)));
}
// To the nearest bfloat16, in the upper half of each lane, with something in the lower one. A nan must have zeros in
// its lower half, as those have that come of bfloat16 values, and of operations on numbers.
inline __m512i rounded_in_upper_half(VectorOf<float>::type value) {
  return _mm512_add_epi32(with_ties_to_even(_mm512_castps_si512(value)), _mm512_set1_epi32(0x7fff));
}
// The opposite of widen_even() and widen_odd(), rounded to the nearest; of nans as rounded_in_upper_half().
inline __m512i narrow_even_odd(VectorOf<float>::type even, VectorOf<float>::type odd) {
  const __m512i words = _mm512_srli_epi32(rounded_in_upper_half(even), 16);
  return _mm512_mask_blend_epi16(0xaaaaaaaau, words, rounded_in_upper_half(odd));
}
// As to_bfloat16() and back; of nans as rounded_in_upper_half().
inline VectorOf<float>::type rounded_to_bfloat16(VectorOf<float>::type value) {
  return _mm512_castsi512_ps(_mm512_and_si512(rounded_in_upper_half(value), _mm512_set1_epi32(-65536)));
}
// The same with ties away from zero, in half the instructions.
inline VectorOf<float>::type rounded_up_to_bfloat16(VectorOf<float>::type value) {
  const __m512i sum = _mm512_add_epi32(_mm512_castps_si512(value), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(-65536)));
}
inline VectorOf<float>::type widen_vector(const Half* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline Shorts to_half(VectorOf<float>::type value) {
  return reinterpret_cast<Shorts>(_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}
inline void stream_vector(void* to, Shorts value) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(value));
}
#else
inline VectorOf<float>::type widen_vector(const BFloat16* from) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
inline Shorts to_bfloat16(VectorOf<float>::type value) {
  const Words bits = reinterpret_cast<Words>(value), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i result = _mm256_blendv_epi8(reinterpret_cast<__m256i>(rounded), _mm256_set1_epi32(0x7fc0), is_nan);
  // Two lanes of 128 bits, each with its four numbers twice.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(result, result), 0x88);
  return reinterpret_cast<Shorts>(_mm256_castsi256_si128(packed));
}
inline VectorOf<float>::type widen_vector(const Half* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline Shorts to_half(VectorOf<float>::type value) {
  return reinterpret_cast<Shorts>(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}
inline void stream_vector(void* to, Shorts value) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(value));
}
#endif
#endif
template <class T, class V>
inline auto narrow_vector(V value) {
  if constexpr (kIs<T, BFloat16>) {
    return to_bfloat16(value);
  } else if constexpr (kIs<T, Half>) {
    return to_half(value);
  } else {
    return value;
  }
}
#if defined(__aarch64__)
template <class T>
inline void narrow_block(T* to, const float* block, int64_t n)
  requires kHasVectors<T>
{
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) store_vector(to + i, narrow_vector<T>(load_vector<VectorOf<float>::type>(block + i)));
  for (; i < n; ++i) to[i] = narrow<T>(block[i]);
}
#endif

// Both ends are aligned to kLine; the size is a multiple of it.
constexpr int64_t kLine = 64;
inline void stream_block(char* to, const char* from, int64_t bytes) {
  using V = VectorOf<int32_t>::type;
  for (int64_t i = 0; i < bytes; i += kWidth) stream_vector(to + i, load_vector<V>(from + i));
}

}  // namespace
}  // namespace opwheel::cpu::OPWHEEL_ISA
