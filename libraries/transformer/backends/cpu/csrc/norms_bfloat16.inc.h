// rms_norm's rows of bfloat16 with the instructions that AVX512_BF16 has for them, 32 elements at a time. The loops in
// norms.inc.h, which round in several instructions, take half as long again. Included by kernels.inc.h.
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

// 32 elements in float32: of each 128 bits the lower four elements and the upper four.
struct Halves {
  Vector<float> low, high;
};

inline Halves widen_halves(__m512i words) {
  const __m512i zero = _mm512_setzero_si512();
  return {reinterpret_cast<Vector<float>>(_mm512_unpacklo_epi16(zero, words)),
          reinterpret_cast<Vector<float>>(_mm512_unpackhi_epi16(zero, words))};
}

// To the nearest. Of the words that were widened every second four are behind the others then, 0 2 4 6 1 3 5 7.
WITH_AVX512_BF16 inline __m512i narrow_halves(Vector<float> low, Vector<float> high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// The same order again, which is that of the beginning after three times.
inline __m512i every_second_four(__m512i words) {
  return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), words);
}

// f(k, i) for 32 elements from k on, each fourth time with the same i: sums that do not wait for each other.
template <class F>
WITH_AVX512_BF16 inline void for_blocks(int64_t n, F f) {
  constexpr int64_t kBlock = 32;
  int64_t k = 0;
  for (; k + 4 * kBlock <= n; k += 4 * kBlock) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) f(k + kBlock * i, i);
  }
  for (; k < n; k += kBlock) f(k, 0);
}

// What is needed of the elements of x: the sum of their squares, and the smallest magnitude.
struct Squares {
  __m512 sums[4] = {};
  Smallest smallest;

  WITH_AVX512_BF16 void add(__m512i words, int64_t i) {
    smallest.add(words);
    const auto values = reinterpret_cast<__m512bh>(words);
    sums[i] = _mm512_dpbf16_ps(sums[i], values, values);
  }
  float sum() const { return _mm512_reduce_add_ps((sums[0] + sums[1]) + (sums[2] + sums[3])); }
};

WITH_AVX512_BF16 inline Squares squares_of(const BFloat16* x, int64_t n) {
  Squares squares;
  for_blocks(n, [&](int64_t k, int64_t i) WITH_AVX512_BF16 { squares.add(_mm512_loadu_si512(x + k), i); });
  return squares;
}

// Those of x + residual, which goes into `total`, and by non-temporal stores into `streamed` if that is not null.
WITH_AVX512_BF16 inline Squares squares_of_sum(const BFloat16* x, const BFloat16* residual, BFloat16* total,
                                               BFloat16* streamed, int64_t n) {
  Squares squares;
  for_blocks(n, [&](int64_t k, int64_t i) WITH_AVX512_BF16 {
    const __m512i a = _mm512_loadu_si512(x + k), b = _mm512_loadu_si512(residual + k);
    const __m512i words = narrow_even_odd(widen_even(a) + widen_even(b), widen_odd(a) + widen_odd(b));
    _mm512_storeu_si512(total + k, words);
    if (streamed != nullptr) stream_vector(streamed + k, words);
    squares.add(words, i);
  });
  return squares;
}

// The weight, widened once for all rows, in the order that its factors have when it is their turn.
class HalvesOfWeight {
 public:
  HalvesOfWeight(const BFloat16* weight, int64_t n) : buffer_(n) {
    Smallest smallest;
    for (int64_t k = 0; k < n; k += 32) {
      const __m512i words = _mm512_loadu_si512(weight + k);
      smallest.add(words);
      const Halves halves = widen_halves(every_second_four(words));
      store_vector(buffer_.data + k, halves.low);
      store_vector(buffer_.data + k + 16, halves.high);
    }
    smallest_ = smallest.value();
  }
  float smallest() const { return smallest_; }
  Halves at(int64_t k) const {
    return {load_vector<Vector<float>>(buffer_.data + k), load_vector<Vector<float>>(buffer_.data + k + 16)};
  }

 private:
  Buffer<float> buffer_;
  float smallest_;
};

// y = x * r, rounded, * weight. also(k, i) is done for each 32 elements: what is read, while memory is written.
template <class Also>
WITH_AVX512_BF16 inline void scale_row(const BFloat16* x, float r, const HalvesOfWeight& weight, BFloat16* y, int64_t n,
                                       bool stream, Also also) {
  for_blocks(n, [&](int64_t k, int64_t i) WITH_AVX512_BF16 {
    also(k, i);
    const Halves values = widen_halves(_mm512_loadu_si512(x + k)), factors = weight.at(k);
    const Halves rounded = widen_halves(narrow_halves(values.low * r, values.high * r));
    const __m512i products = narrow_halves(rounded.low * factors.low, rounded.high * factors.high);
    const __m512i result = every_second_four(products);
    stream ? stream_vector(y + k, result) : store_vector(y + k, result);
  });
}

// What rms_norm_rows() does by Llama's rule, with a weight and no offset, for n that are multiples of 32.
//
// Without a residual, the squares of the next row are added up while this one is written, and memory is asked for
// twice: two rows ahead into the second cache, as the first one holds few requests at a time, and from there into the
// first one. [8192, 2048] takes 0.85 of the time of one row after the other, [32768, 2048] 0.92 (on two cores of a
// Xeon).
template <bool has_residual>
WITH_AVX512_BF16 void rms_norm_bfloat16(const RmsNorm& a, int64_t begin, int64_t end) {
  constexpr float kLeast = 0x1p-125f;  // twice what is too small: products are rounded
  constexpr int64_t kSoon = 512 / sizeof(BFloat16);
  const int64_t n = a.length;
  const auto* const weight = static_cast<const BFloat16*>(a.weight);
  const HalvesOfWeight factors(weight, n);
  const Buffer<BFloat16> buffer(has_residual && a.stream ? n : 0);
  Squares squares;
  if (!has_residual && begin < end) squares = squares_of(static_cast<const BFloat16*>(a.x) + begin * a.x_stride, n);
  for (int64_t i = begin; i < end; ++i) {
    const auto* x = static_cast<const BFloat16*>(a.x) + i * a.x_stride;
    const auto* const residual = static_cast<const BFloat16*>(a.residual) + i * a.residual_stride;
    auto* const total = static_cast<BFloat16*>(a.sum) + i * a.sum_stride;
    auto* const y = static_cast<BFloat16*>(a.y) + i * a.y_stride;
    const bool is_last = i + 1 == end;
    const auto* const next = next_row(x, a.x_stride, is_last);
    const auto* const next_residual = next_row(residual, a.residual_stride, is_last);
    if constexpr (has_residual) {
      auto* const again = a.stream ? buffer.data : total;
      squares = squares_of_sum(x, residual, again, a.stream ? total : nullptr, n);
      x = again;
    }
    // Squares below 2^-126 are missing; they have no weight in a sum that is not small itself.
    float sum_of_squares = squares.sum();
    if (sum_of_squares < static_cast<float>(n) * 1e-30f) {
      sum_of_squares = sum<float>(n, [&](auto at) { return get(x, at) * get(x, at); });
    }
    const float r = reciprocal_root(sum_of_squares / static_cast<float>(n), a.eps);
    const float smallest = squares.smallest.value() * r;
    const bool is_normal = smallest >= kLeast && smallest * factors.smallest() >= kLeast;
    if (!is_normal) {
      for_vectors<float>(n, [&](auto at) { put(y, at, rounded<BFloat16>(get(x, at) * r) * get(weight, at)); });
      if (!has_residual) squares = squares_of(next, n);
    } else if constexpr (has_residual) {
      scale_row(x, r, factors, y, n, a.stream, [&](int64_t k, int64_t) {
        __builtin_prefetch(next + k);
        __builtin_prefetch(next_residual + k);
      });
    } else {
      const auto* const later = next_of_one(x, a.x_stride, n, is_last);
      squares = Squares();
      scale_row(x, r, factors, y, n, a.stream, [&](int64_t k, int64_t i) WITH_AVX512_BF16 {
        __builtin_prefetch(later + k, /*rw=*/0, /*locality=*/2);
        __builtin_prefetch(next + k + kSoon);
        squares.add(_mm512_loadu_si512(next + k), i);
      });
    }
  }
}

#undef WITH_AVX512_BF16
