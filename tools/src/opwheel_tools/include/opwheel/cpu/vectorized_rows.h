// Vectors, reductions and conversions for kernels over rows, compiled for one instruction set.
//
// A source file defines OPWHEEL_ISA and is compiled with the flags of that instruction set. Its kernels are functions
// of plain pointers in a namespace of the library's, library::cpu::<OPWHEEL_ISA>, which a table hands to the source
// file that registers operators (opwheel/cpu/row_kernels.h). All of this has internal linkage, because the same
// templates are compiled with other flags, too (opwheel/detail/cpu/loop.h).
//
// T is what elements are in memory: Half, BFloat16, float or double; they are computed in float, or in double for
// double, in registers of as many as fit:
//
//     for_vectors(n, [&](auto at) { put(y, at, get(x, at) * factor); });      // y[k] = x[k] * factor, k < n
//     float s = sum<float>(n, [&](auto at) { return get(x, at) * get(x, at); });
//     T* const results[] = {y};
//     map(n, results, stream, [](auto& values, auto u, auto v) { values[0] = u * v; }, a, b);
//
// `at` is a position, of whole registers and then of single elements: get() and put() convert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

// IWYU pragma: begin_exports
#include "opwheel/detail/cpu/convert.h"
#include "opwheel/detail/cpu/vector_math.h"
// IWYU pragma: end_exports

namespace opwheel::cpu::OPWHEEL_ISA {
namespace {

using opwheel::ComputeType;
template <class C>
using Vector = typename VectorOf<C>::type;
template <class C>
constexpr int64_t kLanes = kWidth / static_cast<int64_t>(sizeof(C));

// Where to read and write: elements from `index` on, as many as a vector has.
struct Whole {
  int64_t index;
};
// The last ones of a row, fewer than a vector has: the other lanes are zero, and are not written.
struct Some {
  int64_t index;
  int64_t count;
};

template <class T>
inline Vector<ComputeType<T>> get(const T* row, Whole at) {
  if constexpr (kIs<T, ComputeType<T>> || kHasVectors<T>) {
    return widen_vector(row + at.index);
  } else {
    Vector<ComputeType<T>> values;
    for (int64_t i = 0; i < kLanes<ComputeType<T>>; ++i) values[i] = widen(row[at.index + i]);
    return values;
  }
}
template <class T>
inline Vector<ComputeType<T>> get(const T* row, Some at) {
#if defined(__AVX512F__)
  const auto mask = static_cast<uint16_t>((1u << at.count) - 1);
  if constexpr (kIs<T, float>) {
    return _mm512_maskz_loadu_ps(mask, row + at.index);
  } else if constexpr (kIs<T, double>) {
    return _mm512_maskz_loadu_pd(static_cast<uint8_t>(mask), row + at.index);
  } else {
    return widen_words<T>(_mm256_maskz_loadu_epi16(mask, row + at.index));
  }
#else
  T some[kLanes<ComputeType<T>>] = {};
  for (int64_t i = 0; i < at.count; ++i) some[i] = row[at.index + i];
  return get(some, Whole{0});
#endif
}
template <class T>
inline void put(T* row, Whole at, Vector<ComputeType<T>> values) {
  if constexpr (kIs<T, ComputeType<T>> || kHasVectors<T>) {
    store_vector(row + at.index, narrow_vector<T>(values));
  } else {
    for (int64_t i = 0; i < kLanes<ComputeType<T>>; ++i) row[at.index + i] = narrow<T>(values[i]);
  }
}
template <class T>
inline void put(T* row, Some at, Vector<ComputeType<T>> values) {
#if defined(__AVX512F__)
  const auto mask = static_cast<uint16_t>((1u << at.count) - 1);
  if constexpr (kIs<T, float>) {
    _mm512_mask_storeu_ps(row + at.index, mask, values);
  } else if constexpr (kIs<T, double>) {
    _mm512_mask_storeu_pd(row + at.index, static_cast<uint8_t>(mask), values);
  } else {
    _mm256_mask_storeu_epi16(row + at.index, mask, reinterpret_cast<__m256i>(narrow_vector<T>(values)));
  }
#else
  T some[kLanes<ComputeType<T>>];
  put(some, Whole{0}, values);
  for (int64_t i = 0; i < at.count; ++i) row[at.index + i] = some[i];
#endif
}
// put() of a result, with a non-temporal store if `stream` says so (opwheel/detail/cpu/streaming.h): rows then begin
// where cache lines do. Numbers that are converted one at a time are written as usual.
template <class T>
inline void put(T* row, Whole at, Vector<ComputeType<T>> values, bool stream) {
  if constexpr (kIs<T, ComputeType<T>> || kHasVectors<T>) {
    if (stream) return stream_vector(row + at.index, narrow_vector<T>(values));
  }
  put(row, at, values);
}
template <class T>
inline void put(T* row, Some at, Vector<ComputeType<T>> values, bool) {
  put(row, at, values);
}
// Values, computed from T's, rounded to T, as if they had been written and read again.
template <class T>
inline Vector<ComputeType<T>> rounded(Vector<ComputeType<T>> values) {
  if constexpr (kIs<T, ComputeType<T>>) {
    return values;
#if defined(__AVX512F__)
  } else if constexpr (kIs<T, BFloat16>) {
    return rounded_to_bfloat16(values);
#endif
#if !defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  } else if constexpr (kIs<T, BFloat16>) {
    const Bits bits = reinterpret_cast<Bits>(values), kept = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    return values != values ? values : reinterpret_cast<Floats>(kept);
#endif
  } else {
    T memory[kLanes<ComputeType<T>>];
    put(memory, Whole{0}, values);
    return get(memory, Whole{0});
  }
}
// The same of values that are approximations: where one is right between two of T, either will do.
template <class T>
inline Vector<ComputeType<T>> rounded_roughly(Vector<ComputeType<T>> values) {
#if defined(__AVX512F__)
  if constexpr (kIs<T, BFloat16>) return rounded_up_to_bfloat16(values);
#endif
  return rounded<T>(values);
}
// put(), and what get() would read afterwards.
template <class T, class At>
inline Vector<ComputeType<T>> put_rounded(T* row, At at, Vector<ComputeType<T>> values) {
  const Vector<ComputeType<T>> kept = rounded<T>(values);
#if defined(__AVX512F__)
  if constexpr (kIs<T, BFloat16> && kIs<At, Whole>) {
    store_vector(row + at.index, upper_halves_of(kept));
    return kept;
  }
#endif
  put(row, at, kept);
  return kept;
}
template <class T>
inline Vector<ComputeType<T>> rounded_if(bool condition, Vector<ComputeType<T>> values) {
  return condition ? rounded<T>(values) : values;
}

// Asks for what is read soon, elements of the next row for example: while a row in the first cache is computed with,
// the processor does not do so by itself.
template <class T, class At>
inline void prefetch(const T* row, At at) {
  __builtin_prefetch(row + at.index);
}
// Where to, while a row of n elements is computed with: the next row, or the row itself, which is there, if it is the
// last.
template <class T>
inline const T* next_row(const T* row, int64_t stride, bool is_last) {
  return is_last ? row : row + stride;
}
// The same for kernels that read one row for each that they write. Rows that follow each other are asked for 4 KiB
// sooner, so that memory is not idle between two of them: [32768, 2048] of float32 takes 0.94 of the time in rms_norm,
// 0.83 in layer_norm and 0.95 in softmax, but 1.06 where two rows are read, in fused_add_rms_norm (on a Zen 5).
template <class T>
inline const T* next_of_one(const T* row, int64_t stride, int64_t n, bool is_last) {
  constexpr int64_t kAhead = 4096 / sizeof(T);
  return next_row(row, stride, is_last) + (!is_last && stride == n ? kAhead : 0);
}
// The same for loops over memory that follow no rows, 2 KiB ahead: results beyond the caches take 0.78 of the time in
// float32 and 0.63 in bfloat16 in swiglu (on two cores of a Xeon; from 1 to 4 KiB it is the same). Beyond the end of an
// array it asks for nothing: the processor ignores what is not there.
template <class T>
inline void prefetch_ahead(const T* x) {
  constexpr int64_t kAhead = 2048 / sizeof(T);
  __builtin_prefetch(x + kAhead);
}
// A whole row. The processor does not foresee rows that are apart from each other, as those of a view.
template <class T>
inline void prefetch_row(T* row, int64_t length) {
  constexpr bool is_written = !std::is_const_v<T>;
  for (int64_t k = 0; k < length; k += kLine / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + k, is_written);
}

// Calls body(at) for all of n elements that are computed in C.
template <class C, class Body>
__attribute__((always_inline)) inline void for_vectors(int64_t n, const Body& body) {
  int64_t k = 0;
  for (; k + kLanes<C> <= n; k += kLanes<C>) body(Whole{k});
  if (k < n) body(Some{k, n - k});
}

// Computes n elements of each of the results `y` from those of the x at the same places: f(values, of_x...) sets
// values[i] for y[i]. Which elements are in a vector is left open: 16-bit elements so take fewer instructions than with
// for_vectors(). A nan that f sets must have zeros in its lower half where T is bfloat16, as those have that come of
// its x, and of operations on numbers.
template <class T, std::size_t count, class F, class... X>
__attribute__((always_inline)) inline void map(int64_t n, T* const (&y)[count], bool stream, const F& f,
                                               const X*... x) {
  using V = Vector<ComputeType<T>>;
  int64_t k = 0;
#if defined(__AVX512F__)
  if constexpr (kIs<T, BFloat16>) {
    for (; k + 2 * kLanes<float> <= n; k += 2 * kLanes<float>) {
      V even[count], odd[count];
      (prefetch_ahead(x + k), ...);
      f(even, widen_even(_mm512_loadu_si512(x + k))...);
      f(odd, widen_odd(_mm512_loadu_si512(x + k))...);
      for (std::size_t i = 0; i < count; ++i) {
        const __m512i words = narrow_even_odd(even[i], odd[i]);
        stream ? stream_vector(y[i] + k, words) : store_vector(y[i] + k, words);
      }
    }
  }
#endif
  for_vectors<ComputeType<T>>(n - k, [&](auto at) {
    V values[count];
    (prefetch_ahead(x + k + at.index), ...);
    f(values, get(x + k, at)...);
    for (std::size_t i = 0; i < count; ++i) put(y[i] + k, at, values[i], stream);
  });
}

// of(i) in each lane i, of as many as V has. Where it is constexpr, it is a constant for GCC; of lanes that are written
// one after the other it often makes code that puts them together.
template <class V, class Of>
constexpr auto lanes_of(Of of) {
  using Lanes = decltype(V{} == V{});
  return [of]<int... i>(std::integer_sequence<int, i...>) {
    return Lanes{static_cast<decltype(Lanes{}[0] + 0)>(of(i))...};
  }(std::make_integer_sequence<int, sizeof(V) / sizeof(V{}[0])>{});
}
// In lane i the lane of(i) of both vectors, those of `second` after those of `first`. `of` has no captures.
template <class V, class Of>
inline V shuffled(V first, V second, Of) {
  constexpr auto lanes = lanes_of<V>(Of{});
#ifdef __clang__  // it has no __builtin_shuffle
  constexpr int64_t kCount = sizeof(V) / sizeof(first[0]);
  V values;
  for (int64_t i = 0; i < kCount; ++i) values[i] = lanes[i] < kCount ? first[lanes[i]] : second[lanes[i] - kCount];
  return values;
#else
  return __builtin_shuffle(first, second, lanes);
#endif
}
// Lane i + count in lane i, around.
template <int64_t count, class V>
inline V turned(V values) {
  return shuffled(values, values, [](int i) { return i + count; });
}
// The first `count` lanes of `values`, the others of `rest`.
template <class V>
inline V first_lanes(V values, int64_t count, V rest) {
  constexpr auto lanes = lanes_of<V>([](int i) { return i; });
  return lanes < static_cast<decltype(lanes[0] + 0)>(count) ? values : rest;
}

// Lanes of the first vector in whose number `bit` is set change places with those of the second that are `bit` before.
template <std::size_t bit, class V>
inline void exchange(V& first, V& second) {
  constexpr std::size_t kCount = sizeof(V) / sizeof(first[0]);
  const V upper = shuffled(first, second, [](std::size_t i) { return i & bit ? kCount + i - bit : i; });
  second = shuffled(first, second, [](std::size_t i) { return i & bit ? kCount + i : i + bit; });
  first = upper;
}
// Rows of a square to its columns. Elements whose row and column differ in a bit change places, a bit after the other.
template <std::size_t bit = 1, class V, std::size_t count>
inline void transpose(V (&square)[count]) {
  static_assert(count == sizeof(V) / sizeof(square[0][0]));
#pragma GCC unroll 16
  for (std::size_t i = 0; i < count; ++i) {
    if (!(i & bit)) exchange<bit>(square[i], square[i + bit]);
  }
  if constexpr (2 * bit < count) transpose<2 * bit>(square);
}

// Two numbers that are added up side by side.
template <class N>
struct Two {
  N first, second;
};
template <class V>
inline Two<V> first_lanes(Two<V> values, int64_t count, Two<V> rest) {
  return {first_lanes(values.first, count, rest.first), first_lanes(values.second, count, rest.second)};
}

// Calls add(i, value(at)) for all of n elements, i < 4: what is added up does not wait for each other. Lanes beyond the
// last element are those of `rest`.
template <class C, class Values, class Value, class Add>
__attribute__((always_inline)) inline void add_up(int64_t n, Values rest, const Value& value, const Add& add) {
  int64_t k = 0;
  for (; k + 4 * kLanes<C> <= n; k += 4 * kLanes<C>) {
    for (int64_t i = 0; i < 4; ++i) add(i, value(Whole{k + i * kLanes<C>}));
  }
  for (; k + kLanes<C> <= n; k += kLanes<C>) add(0, value(Whole{k}));
  if (k < n) add(1, first_lanes(value(Some{k, n - k}), n - k, rest));
}
// All lanes of a vector.
template <class C, class Combine>
__attribute__((always_inline)) inline C combine_lanes(Vector<C> all, const Combine& combine) {
  if constexpr (kLanes<C> >= 16) all = combine(all, turned<8>(all));
  if constexpr (kLanes<C> >= 8) all = combine(all, turned<4>(all));
  if constexpr (kLanes<C> >= 4) all = combine(all, turned<2>(all));
  return combine(all, turned<1>(all))[0];
}
template <class C, class Combine>
__attribute__((always_inline)) inline C combine_lanes(const Vector<C> (&partial)[4], const Combine& combine) {
  return combine_lanes<C>(combine(combine(partial[0], partial[1]), combine(partial[2], partial[3])), combine);
}
// Combines value(at) over all of n elements, but for the lanes of the vector that is left; lanes beyond the last
// element count as `start`.
template <class C, class Value, class Combine>
__attribute__((always_inline)) inline Vector<C> reduce_to_lanes(int64_t n, C start, const Value& value,
                                                                const Combine& combine) {
  const Vector<C> initial = Vector<C>{} + start;
  Vector<C> partial[4] = {initial, initial, initial, initial};
  add_up<C>(n, initial, value, [&](int64_t i, Vector<C> values) { partial[i] = combine(partial[i], values); });
  return combine(combine(partial[0], partial[1]), combine(partial[2], partial[3]));
}
// And its lanes.
template <class C, class Value, class Combine>
__attribute__((always_inline)) inline C reduce(int64_t n, C start, const Value& value, const Combine& combine) {
  return combine_lanes<C>(reduce_to_lanes<C>(n, start, value, combine), combine);
}
template <class C, class Value>
__attribute__((always_inline)) inline C sum(int64_t n, const Value& value) {
  return reduce<C>(n, C(0), value, [](Vector<C> a, Vector<C> b) { return a + b; });
}
// The sums of the two numbers that values(at) has.
template <class C, class Values>
__attribute__((always_inline)) inline Two<C> sums(int64_t n, const Values& values) {
  Vector<C> first[4] = {}, second[4] = {};
  add_up<C>(n, Two<Vector<C>>{}, values, [&](int64_t i, Two<Vector<C>> some) {
    first[i] += some.first;
    second[i] += some.second;
  });
  const auto add = [](Vector<C> a, Vector<C> b) { return a + b; };
  return {combine_lanes<C>(first, add), combine_lanes<C>(second, add)};
}
// The sums of value(at) and of its square.
template <class C, class Count, class Value>
__attribute__((always_inline)) inline auto sum_and_squares(Count n, const Value& value) {
  return sums<C>(n, [&](auto at) {
    const Vector<C> one = value(at);
    return Two<Vector<C>>{one, one * one};
  });
}
// Of numbers: whether nan counts is not defined.
template <class C, class Value>
__attribute__((always_inline)) inline C maximum(int64_t n, C start, const Value& value) {
  return reduce<C>(n, start, value, [](Vector<C> a, Vector<C> b) { return a > b ? a : b; });
}

// Memory for a row, aligned to a cache line; none for no elements. Not initialised. Throws std::bad_alloc, which run()
// has an error for.
template <class C>
struct Buffer {
  C* data;
  explicit Buffer(int64_t n)
      : data(n == 0
                 ? nullptr
                 : static_cast<C*>(::operator new(static_cast<std::size_t>(n) * sizeof(C), std::align_val_t(kLine)))) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::operator delete(data, std::align_val_t(kLine)); }
};

}  // namespace
}  // namespace opwheel::cpu::OPWHEEL_ISA
