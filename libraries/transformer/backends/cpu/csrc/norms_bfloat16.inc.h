// rms_norm's rows of bfloat16 with the instructions that AVX512_BF16 has for them, 32 elements at a time. The loops in
// norms.inc.h, which round in several instructions, take half as long again. Included by norms.inc.h.
//
// These instructions take numbers below 2^-126 for zero. Where there might be some, a row is computed without them.
#define WITH_AVX512_BF16 __attribute__((target("avx512bf16")))

inline bool has_avx512_bf16() {
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has;
}

// The smallest magnitude among numbers that are not zero.
class Smallest {
 public:
  void add(__m512i words) {
    const __m512i magnitudes = _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
    before_ = _mm512_min_epu16(before_, _mm512_sub_epi16(magnitudes, _mm512_set1_epi16(1)));
  }
  float value() const {
    const __m512i odd = _mm512_srli_epi32(before_, 16), even = _mm512_and_si512(before_, _mm512_set1_epi32(0xffff));
    const uint32_t bits = _mm512_reduce_min_epu32(_mm512_min_epu32(even, odd)) + 1;
    return __builtin_bit_cast(float, bits << 16);
  }

 private:
  __m512i before_ = _mm512_set1_epi16(0x7f7f);  // the bits less one, so that zero has the most
};

// From elements at even places and those at odd ones, each to the nearest.
WITH_AVX512_BF16 inline __m512i nearest_bfloat16(Vector<float> even, Vector<float> odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even)));
}

// Squares of 32 elements go to `sum`, of x or of x + residual, which goes into `total`, and past the caches into
// `streamed` if that is not null.
template <bool has_residual>
WITH_AVX512_BF16 inline void add_squares(const BFloat16* x, const BFloat16* residual, BFloat16* total,
                                         BFloat16* streamed, __m512& sum, Smallest& smallest) {
  __m512i words = _mm512_loadu_si512(x);
  if constexpr (has_residual) {
    const __m512i more = _mm512_loadu_si512(residual);
    words = narrow_even_odd(widen_even(words) + widen_even(more), widen_odd(words) + widen_odd(more));
    _mm512_storeu_si512(total, words);
    if (streamed != nullptr) stream_vector(streamed, words);
  }
  smallest.add(words);
  const auto values = reinterpret_cast<__m512bh>(words);
  sum = _mm512_dpbf16_ps(sum, values, values);
}

template <bool has_residual>
WITH_AVX512_BF16 inline float sum_of_squares(const BFloat16* x, const BFloat16* residual, BFloat16* total,
                                             BFloat16* streamed, int64_t n, Smallest& smallest) {
  __m512 sums[4] = {};
  const auto add = [&](int64_t at, __m512& sum) WITH_AVX512_BF16 {
    BFloat16* const past = streamed == nullptr ? nullptr : streamed + at;
    add_squares<has_residual>(x + at, residual + at, total + at, past, sum, smallest);
  };
  int64_t k = 0;
  for (; k + 4 * 32 <= n; k += 4 * 32) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) add(k + 32 * i, sums[i]);
  }
  for (; k < n; k += 32) add(k, sums[0]);
  return _mm512_reduce_add_ps((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// y = x * r, rounded, * weight, while `next` and `next_residual` are asked for. One row alone is asked for into the
// second cache: it is two rows ahead, and the first one holds few requests at a time. [32768, 2048] takes 0.8 of the
// time (on two cores of a Xeon).
template <bool has_residual>
WITH_AVX512_BF16 inline void scale_row(const BFloat16* x, float r, const BFloat16* weight, BFloat16* y, int64_t n,
                                       bool stream, const BFloat16* next, const BFloat16* next_residual) {
  for (int64_t k = 0; k < n; k += 32) {
    __builtin_prefetch(next + k, /*rw=*/0, /*locality=*/has_residual ? 3 : 2);
    if constexpr (has_residual) __builtin_prefetch(next_residual + k);
    const __m512i words = _mm512_loadu_si512(x + k), factors = _mm512_loadu_si512(weight + k);
    const __m512i rounded = nearest_bfloat16(widen_even(words) * r, widen_odd(words) * r);
    const auto even = widen_even(rounded) * widen_even(factors), odd = widen_odd(rounded) * widen_odd(factors);
    const __m512i result = nearest_bfloat16(even, odd);
    stream ? stream_vector(y + k, result) : store_vector(y + k, result);
  }
}

// What rms_norm_rows() does by Llama's rule, with a weight and no offset, for n that are multiples of 32.
template <bool has_residual>
WITH_AVX512_BF16 void rms_norm_bfloat16(const RmsNorm& a, int64_t begin, int64_t end) {
  constexpr float kLeast = 0x1p-125f;  // twice what is too small: products are rounded
  const int64_t n = a.length;
  const auto* const weight = static_cast<const BFloat16*>(a.weight);
  Smallest of_weight;
  for (int64_t k = 0; k < n; k += 32) of_weight.add(_mm512_loadu_si512(weight + k));
  const float smallest_weight = of_weight.value();
  const Buffer<BFloat16> buffer(has_residual && a.stream ? n : 0);
  for (int64_t i = begin; i < end; ++i) {
    const auto* x = static_cast<const BFloat16*>(a.x) + i * a.x_stride;
    const auto* const residual = static_cast<const BFloat16*>(a.residual) + i * a.residual_stride;
    auto* const total = static_cast<BFloat16*>(a.sum) + i * a.sum_stride;
    auto* const y = static_cast<BFloat16*>(a.y) + i * a.y_stride;
    const bool is_last = i + 1 == end;
    const auto* const next = has_residual ? next_row(x, a.x_stride, is_last) : next_of_one(x, a.x_stride, n, is_last);
    const auto* const next_residual = next_row(residual, a.residual_stride, is_last);
    Smallest of_x;
    auto* const again = a.stream ? buffer.data : total;
    float squares = sum_of_squares<has_residual>(x, residual, again, a.stream ? total : nullptr, n, of_x);
    if constexpr (has_residual) x = again;
    // Squares below 2^-126 are missing; they have no weight in a sum that is not small itself.
    if (squares < static_cast<float>(n) * 1e-30f) {
      squares = sum<float>(n, [&](auto at) { return get(x, at) * get(x, at); });
    }
    const float r = reciprocal_root(squares / static_cast<float>(n), a.eps), smallest = of_x.value() * r;
    if (smallest >= kLeast && smallest * smallest_weight >= kLeast) {
      scale_row<has_residual>(x, r, weight, y, n, a.stream, next, next_residual);
    } else {
      for_vectors<float>(n, [&](auto at) { put(y, at, rounded<BFloat16>(get(x, at) * r) * get(weight, at)); });
    }
  }
}

#undef WITH_AVX512_BF16
