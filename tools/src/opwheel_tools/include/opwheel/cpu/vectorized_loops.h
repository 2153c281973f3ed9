// The loops of element-wise operators on a CPU, for one instruction set.
//
// A source file defines OPWHEEL_ISA and is compiled with the flags of that instruction set. OPWHEEL_CPU_LOOPS makes
// library::cpu::<OPWHEEL_ISA>::choose_<operator> for each operator, which returns the loop for given operands. All the
// rest has internal linkage, because the same templates are compiled with other flags, too (opwheel/detail/cpu/loop.h).
//
// One call of a loop computes `n` elements in each of `rows` rows, for every operand k, results first:
//
//     data[k] -> e e e e ... e   row 0          from one element to the next: strides[k] bytes
//                e e e e ... e   row 1          from one row to the next: outer_strides[k] bytes
//                ...             row rows - 1   either is 0 where an input is repeated (broadcast)
//
// T is the dtype of the results, C the type computed in: float, or double for float64. choose() takes the first loop
// that fits; a row is called contiguous where its elements follow each other in memory:
//
//     loop         operands                                      how
//     tiled        an input is transposed                        tiles, put in order, then blocks()
//     strided      all of dtype T, a row is not contiguous       one element after another
//     contiguous   all of dtype T, rows contiguous or repeated,  a[i .. i+w], b[i .. i+w] -> f -> out[i .. i+w],
//                  T is C                                        two cache lines at a time
//     vectors      the same, but T has 16 bits, or with          a[i .. i+w] -> widen -> f -> round -> out[i .. i+w],
//                  non-temporal stores (spec.stream)             a register at a time
//     blocked      anything else: mixed dtypes, or 16 bits       blocks of 512 elements, see below
//                  on a processor without AVX2
//
//     blocks()     a  --load-->  [ 512 x C ] --\                     the blocks of all operands stay in the
//                  b  --load-->  [ 512 x C ] ---> f --> [ 512 x C ]  first-level cache (128 where streamed)
//                                                           |
//                  out  <------------- round, store --------/
//
//     tiled        out, in rows              b, transposed                a tile has 64 elements of as many rows as
//                  +------+------+--         +--+--+--+--                 elements fit into a cache line (16 of
//                  |tile 0|tile 1|           | 0| 1| 2|                   float32): each cache line of b is fetched
//                  +------+------+--         |  |  |  |                   once for all rows that it has elements of
//                  |  ..  |  ..  |           +--+--+--+--
#pragma once

#include <cstddef>
#include <cstdint>

#include "opwheel/detail/cpu/convert.h"
#include "opwheel/detail/cpu/loop.h"

namespace opwheel::cpu::OPWHEEL_ISA {
namespace {

constexpr int64_t kBlock = 512;  // elements computed at a time: all operands' blocks stay in the first-level cache
// The same where results are streamed: nothing is read while they are written, so the turns are short. Every second
// element of 2^24, float32: a sixth faster than with 512 (on a Zen 4).
constexpr int64_t kStreamedBlock = 128;

inline int64_t size_of(int64_t step) { return step < 0 ? -step : step; }

inline bool is_transposed(const LoopSpec& spec, int operand) {
  const int64_t step = size_of(spec.strides[operand]), outer_step = size_of(spec.outer_strides[operand]);
  return outer_step != 0 && outer_step < step;
}

// How the operands lie in memory, as far as it decides which loop is taken.
struct Arrangement {
  bool is_one_type = true;      // every operand has the results' dtype
  bool is_side_by_side = true;  // every row is contiguous, or one value
  bool is_in_blocks;            // the same, or every second element of one, which pays for registers of many elements
  bool is_across = false;       // some operand is transposed: rows are closer to each other than elements
  unsigned repeated = 0;        // a bit for each input that is one value
};

// Elements of the results have `size` bytes; of the operands, the first `outputs` are results. One copy for all
// operators, as opwheel::detail::plan_inputs().
__attribute__((noinline)) inline Arrangement arrangement(const LoopSpec& spec, DType type, int64_t size, int outputs,
                                                         int operands) {
  Arrangement found{.is_in_blocks = size <= 4};
#pragma GCC unroll 1
  for (int k = 0; k < operands; ++k) {
    const bool is_repeated = k >= outputs && spec.strides[k] == 0;
    const bool is_next = spec.strides[k] == size || is_repeated;
    found.is_one_type &= spec.dtypes[k] == type;
    found.is_side_by_side &= is_next;
    found.is_in_blocks &= is_next || (k >= outputs && spec.strides[k] == 2 * size);
    if (is_repeated) found.repeated |= 1u << (k - outputs);
    found.is_across |= is_transposed(spec, k);
  }
  return found;
}

template <template <class> class Functor, class T>
struct Loops {
  using C = ComputeType<T>;
  using F = Functor<C>;
  static constexpr int kOutputs = FunctorTraits<F>::kOutputs, kInputs = FunctorTraits<F>::kInputs;
  static constexpr int64_t kSize = sizeof(T);
  static constexpr int64_t kTileRows = kLine / kSize, kTileLength = 64, kTileAhead = 16;

  // One row of n elements. All operands are of type C and contiguous, but for inputs that are one value for the whole
  // row: input i where bit i of `repeated` is set.
  template <unsigned repeated>
  static void contiguous(const LoopSpec& spec, char* const* data, int64_t n) {
    const C* in[kInputs];
    for (int i = 0; i < kInputs; ++i) in[i] = reinterpret_cast<const C*>(data[kOutputs + i]);
    C* out[kOutputs];
    for (int i = 0; i < kOutputs; ++i) out[i] = reinterpret_cast<C*>(data[i]);
    compute<repeated>(spec, in, out, n);
  }

  // Two cache lines of every operand at a time: all is loaded before anything is stored. From beyond the second-level
  // cache this takes up to a tenth less time than a vector after the other, and than vectors of 512 bits (on a Zen 4).
  template <unsigned repeated>
  __attribute__((always_inline)) static void compute(const LoopSpec& spec, const C* const (&in)[kInputs],
                                                     C* const (&out)[kOutputs], int64_t n) {
    constexpr int64_t kBytes = kWidth > 32 ? 32 : kWidth;
    using V = typename VectorOf<C, kBytes>::type;
    constexpr int64_t kLanes = sizeof(V) / sizeof(C), kVectors = 2 * kLine / sizeof(V);
    const auto on_vectors = make_vector<V>(spec);
    V splats[kInputs];
    for (int k = 0; k < kInputs; ++k) {
      if (repeated >> k & 1) splats[k] = splat<V>(*in[k]);
    }
    int64_t i = 0;
    for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
      V results[kVectors][kOutputs];
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; ++v) {
        V inputs[kInputs];
        for (int k = 0; k < kInputs; ++k) {
          inputs[k] = repeated >> k & 1 ? splats[k] : load_vector<V>(in[k] + i + v * kLanes);
        }
        apply(on_vectors, inputs, results[v]);
      }
      for (int k = 0; k < kOutputs; ++k) {
#pragma GCC unroll 8
        for (int64_t v = 0; v < kVectors; ++v) store_vector(out[k] + i + v * kLanes, results[v][k]);
      }
    }
    const F functor = make_functor<F>(spec.parameters);
#pragma GCC ivdep
    for (; i < n; ++i) {
      C inputs[kInputs], results[kOutputs];
      for (int k = 0; k < kInputs; ++k) inputs[k] = in[k][repeated >> k & 1 ? 0 : i];
      apply(functor, inputs, results);
      for (int k = 0; k < kOutputs; ++k) out[k][i] = results[k];
    }
  }

  // One row of n elements, a register at a time. All operands are of type T, contiguous or one value for the whole row.
  // What is before the first cache line of a streamed result, and what does not fill a register, is done by strided().
  static void vectors(const LoopSpec& spec, char* const* data, int64_t n) {
    const bool stream = spec.stream && can_stream(spec, data);
    if (kIs<T, C> && !stream) return blocks(spec, data, n, 1);
    constexpr int64_t kLanes = kWidth / sizeof(C);
    T repeated[kInputs][kLanes];
    const T* in[kInputs];
    int64_t steps[kInputs];
    for (int k = 0; k < kInputs; ++k) {
      in[k] = reinterpret_cast<const T*>(data[kOutputs + k]);
      steps[k] = spec.strides[kOutputs + k] == 0 ? 0 : 1;
      if (steps[k] != 0) continue;
      for (T& lane : repeated[k]) lane = *in[k];
      in[k] = repeated[k];
    }
    int64_t begin = stream ? until_aligned(data[0]) : 0;
    if (begin > n) begin = n;
    some(spec, data, 0, begin);
    const int64_t end = begin + (n - begin) / kLanes * kLanes;
    stream ? vector_loop<true>(spec, data, in, steps, begin, end)
           : vector_loop<false>(spec, data, in, steps, begin, end);
    some(spec, data, end, n);
  }

  template <bool stream>
  static void vector_loop(const LoopSpec& spec, char* const* data, const T* const* in, const int64_t* steps,
                          int64_t begin, int64_t end) {
    using V = typename VectorOf<C>::type;
    const auto functor = make_vector<V>(spec);
    const auto put = [](T* to, V value) {
      const auto narrowed = narrow_vector<T>(value);
      stream ? stream_vector(to, narrowed) : store_vector(to, narrowed);
    };
    for (int64_t i = begin; i < end; i += kWidth / sizeof(C)) {
      V inputs[kInputs], results[kOutputs];
      for (int k = 0; k < kInputs; ++k) inputs[k] = widen_vector(in[k] + i * steps[k]);
      apply(functor, inputs, results);
      for (int k = 0; k < kOutputs; ++k) put(reinterpret_cast<T*>(data[k]) + i, results[k]);
    }
  }

  // The functor on vectors of C.
  template <class V>
  static auto make_vector(const LoopSpec& spec) {
    V parameters[kMaxParameters];
    for (int k = 0; k < kMaxParameters; ++k) parameters[k] = splat<V>(static_cast<C>(spec.parameters[k]));
    return make_functor<Functor<V>>(parameters);
  }

  // Elements begin to end of a row, one after another.
  static void some(const LoopSpec& spec, char* const* data, int64_t begin, int64_t end) {
    if (begin == end) return;
    char* at[kOutputs + kInputs];
    for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k] + begin * spec.strides[k];
    strided(spec, at, end - begin);
  }

  // Operands of any dtypes and strides: inputs are converted into blocks of C, results are rounded from blocks of C.
  static void blocked(const LoopSpec& spec, char* const* data, int64_t n, int64_t rows) {
    blocks(spec, data, n, rows);
    if (spec.stream) finish_streaming();
  }

  static void blocks(const LoopSpec& spec, char* const* data, int64_t n, int64_t rows) {
    alignas(kLine) C blocks[kInputs][kBlock];
    alignas(kLine) C results[kOutputs][kBlock];
    C* out[kOutputs];
    for (int k = 0; k < kOutputs; ++k) out[k] = results[k];
    const C* whole[kInputs] = {};  // an input's whole row, where it is short and the same for all rows: loaded once
    char* at[kOutputs + kInputs];
    for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k];
    for (int64_t row = 0; row < rows; ++row) {
      for (int k = 0; k < kInputs; ++k) {
        const int operand = kOutputs + k;
        const bool is_new = row == 0 || spec.outer_strides[operand] != 0;
        if (spec.strides[operand] == 0) {
          if (is_new) fill(blocks[k], spec, at, k, n < kBlock ? n : kBlock);
        } else if (spec.outer_strides[operand] == 0 && n <= kBlock && is_new) {
          whole[k] = load(blocks[k], spec, at, k, 0, n);
        }
      }
      const bool stream = spec.stream && can_stream(spec, at);
      // If the result is streamed, the first block ends where its first whole cache line begins.
      const int64_t block = stream ? kStreamedBlock : kBlock;
      int64_t begin = 0, length = stream ? until_aligned(at[0]) : kBlock;
      for (; begin < n; begin += length, length = block) {
        if (length == 0) continue;
        if (length > n - begin) length = n - begin;
        const C* in[kInputs];
        for (int k = 0; k < kInputs; ++k) {
          in[k] = spec.strides[kOutputs + k] == 0 ? blocks[k]
                  : whole[k] != nullptr           ? whole[k] + begin
                                                  : load(blocks[k], spec, at, k, begin, length);
        }
        compute<0>(spec, in, out, length);
        for (int k = 0; k < kOutputs; ++k)
          store(at[k] + begin * spec.strides[k], spec.strides[k], results[k], length, stream);
      }
      for (int k = 0; k < kOutputs + kInputs; ++k) at[k] += spec.outer_strides[k];
    }
  }

  // Whether every result is contiguous, and cache lines begin at the same elements in all of them.
  static bool can_stream(const LoopSpec& spec, char* const* data) {
    for (int k = 0; k < kOutputs; ++k) {
      const bool is_aligned = reinterpret_cast<uintptr_t>(data[k]) % kSize == 0;
      if (spec.strides[k] != kSize || !is_aligned || until_aligned(data[k]) != until_aligned(data[0])) return false;
    }
    return true;
  }
  // Elements before the next cache line.
  static int64_t until_aligned(const char* data) {
    return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(data) % kLine) / kSize;
  }
  static void finish_streaming() {
#if defined(__x86_64__)
    _mm_sfence();  // before other threads may be told that the result is there
#endif
  }

  // Makes a loop over rows of a function that computes one row.
  template <void (*row)(const LoopSpec&, char* const*, int64_t)>
  static void each(const LoopSpec& spec, char* const* data, int64_t n, int64_t rows) {
    char* at[kOutputs + kInputs];
    for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k];
    while (true) {
      row(spec, at, n);
      if (--rows == 0) break;
      for (int k = 0; k < kOutputs + kInputs; ++k) at[k] += spec.outer_strides[k];
    }
    if (spec.stream) finish_streaming();
  }

  // For a transposed operand, whose neighbours in memory are in the next rows: a tile of it is put in order first.
  static void tiled(const LoopSpec& given, char* const* data, int64_t n, int64_t rows) {
    alignas(kLine) C tiles[kInputs][kTileRows * kTileLength];
    LoopSpec spec = given;  // with the tiles in the place of transposed inputs
    for (int k = kOutputs; k < kOutputs + kInputs; ++k) {
      if (!is_transposed(given, k)) continue;
      spec.strides[k] = sizeof(C);
      spec.outer_strides[k] = kTileLength * sizeof(C);
      spec.dtypes[k] = kIs<C, double> ? DType::float64 : DType::float32;
    }
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const int64_t tile_rows = rows - row < kTileRows ? rows - row : kTileRows;
      for (int64_t i = 0; i < n; i += kTileLength) {
        const int64_t length = n - i < kTileLength ? n - i : kTileLength;
        char* at[kOutputs + kInputs];
        for (int k = 0; k < kOutputs + kInputs; ++k)
          at[k] = data[k] + row * given.outer_strides[k] + i * given.strides[k];
        for (int k = 0; k < kInputs; ++k) {
          if (!is_transposed(given, kOutputs + k)) continue;
          load_tile(tiles[k], given, at, k, length, tile_rows);
          at[kOutputs + k] = reinterpret_cast<char*>(tiles[k]);
        }
        blocks(spec, at, length, tile_rows);
      }
    }
    if (given.stream) finish_streaming();
  }

  // The tile's n elements of each of `rows` rows of input k. Each of its cache lines is read once, whole: a row of the
  // input has as many cache lines as elements, which in large powers of two displace each other.
  static void load_tile(C* tile, const LoopSpec& spec, char* const* data, int k, int64_t n, int64_t rows) {
    with_element_type<StoredTypes>(spec.dtypes[kOutputs + k], [&](auto type) __attribute__((always_inline)) {
      load_tile_as<typename decltype(type)::type>(tile, spec, data, k, n, rows);
    });
  }

  template <class From>
  static void load_tile_as(C* tile, const LoopSpec& spec, char* const* data, int k, int64_t n, int64_t rows) {
    const int64_t step = spec.strides[kOutputs + k], outer_step = spec.outer_strides[kOutputs + k];
    for (int64_t i = 0; i < n; ++i) {
      const char* from = data[kOutputs + k] + i * step;
      const char* ahead = from + kTileAhead * step;  // its rows begin and end in one cache line or in two
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + (rows - 1) * outer_step);
      for (int64_t row = 0; row < rows; ++row) {
        tile[row * kTileLength + i] = static_cast<C>(widen(*reinterpret_cast<const From*>(from + row * outer_step)));
      }
    }
  }

  // A block of n times the one value of input k.
  static void fill(C* block, const LoopSpec& spec, char* const* data, int k, int64_t n) {
    C value = *load(block, spec, data, k, 0, 1);
    for (int64_t i = 0; i < n; ++i) block[i] = value;
  }

  // Elements begin to begin + n of input k's row as C: converted into `block`, or where they are if they are C already.
  static const C* load(C* block, const LoopSpec& spec, char* const* data, int k, int64_t begin, int64_t n) {
    const int64_t step = spec.strides[kOutputs + k];
    const char* from = data[kOutputs + k] + begin * step;
    return with_element_type<StoredTypes>(spec.dtypes[kOutputs + k], [&](auto type) __attribute__((always_inline)) {
      return load_as<typename decltype(type)::type>(block, from, step, n);
    });
  }

  template <class From>
  static const C* load_as(C* block, const char* from, int64_t step, int64_t n) {
    if (step == sizeof(From)) {
      if constexpr (kIs<From, C>) {
        return reinterpret_cast<const C*>(from);
      } else {
        widen_block(block, reinterpret_cast<const From*>(from), n);
      }
    } else if (step == 2 * static_cast<int64_t>(sizeof(From))) {
      load_every_second(block, reinterpret_cast<const From*>(from), n);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        block[i] = static_cast<C>(widen(*reinterpret_cast<const From*>(from + i * step)));
      }
    }
    return block;
  }

  // A step that the compiler knows takes loads of whole registers, and shuffles. Of 16 bits the wanted element is the
  // lower half of 32; behind the last one nothing is read.
  template <class From>
  __attribute__((noinline)) static void load_every_second(C* block, const From* from, int64_t n) {
    if constexpr (kIs<From, C>) {
      for (int64_t i = 0; i < n; ++i) block[i] = from[2 * i];
    } else {
      From some[kBlock];
      if constexpr (sizeof(From) == 2) {
        for (int64_t i = 0; i + 1 < n; ++i) {
          uint32_t pair;
          __builtin_memcpy(&pair, from + 2 * i, sizeof(pair));
          some[i].bits = static_cast<uint16_t>(pair);
        }
        some[n - 1] = from[2 * (n - 1)];
      } else {
        for (int64_t i = 0; i < n; ++i) some[i] = from[2 * i];
      }
      widen_block(block, some, n);
    }
  }

  // Rounds a block to n elements that lie `step` bytes apart; contiguous ones with non-temporal stores if `stream` says
  // so.
  static void store(char* to, int64_t step, const C* block, int64_t n, bool stream) {
    if (step != kSize) {
      for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(to + i * step) = narrow<T>(block[i]);
      return;
    }
    const int64_t streamed =
        stream && reinterpret_cast<uintptr_t>(to) % kLine == 0 ? n * kSize / kLine * kLine / kSize : 0;
    if constexpr (kIs<T, C>) {
      stream_block(to, reinterpret_cast<const char*>(block), streamed * kSize);
    } else if (streamed != 0) {
      alignas(kLine) T narrowed[kBlock];
      narrow_block(narrowed, block, streamed);
      stream_block(to, reinterpret_cast<const char*>(narrowed), streamed * kSize);
    }
    narrow_block(reinterpret_cast<T*>(to) + streamed, block + streamed, n - streamed);
  }

  // One row of n elements of type T, with any strides, one after another: without neighbours no block pays.
  static void strided(const LoopSpec& spec, char* const* data, int64_t n) {
    const F functor = make_functor<F>(spec.parameters);
    char* at[kOutputs + kInputs];
    for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k];
    for (int64_t i = 0; i < n; ++i) {
      C inputs[kInputs], results[kOutputs];
      for (int k = 0; k < kInputs; ++k) inputs[k] = widen(*reinterpret_cast<const T*>(at[kOutputs + k]));
      apply(functor, inputs, results);
      for (int k = 0; k < kOutputs; ++k) *reinterpret_cast<T*>(at[k]) = narrow<T>(results[k]);
      for (int k = 0; k < kOutputs + kInputs; ++k) at[k] += spec.strides[k];
    }
  }

  static Loop2d choose(const LoopSpec& spec, DType type) {
    const Arrangement found = arrangement(spec, type, kSize, kOutputs, kOutputs + kInputs);
    if (found.is_across) return &tiled;
    if (found.is_one_type && !found.is_side_by_side) return found.is_in_blocks ? &blocked : &each<strided>;
    if constexpr (kIs<T, C>) {
      if (found.is_one_type) return spec.stream ? &each<vectors> : choose_repeated<0>(found.repeated);
    } else if constexpr (kHasVectors<T>) {
      if (found.is_one_type) return &each<vectors>;
    }
    return &blocked;
  }

  template <unsigned candidate>
  static Loop2d choose_repeated(unsigned repeated) {
    if constexpr (candidate + 1 < 1u << kInputs) {
      if (repeated != candidate) return choose_repeated<candidate + 1>(repeated);
    }
    return &each<contiguous<candidate>>;
  }
};

template <template <class> class Functor>
Loop2d choose_loop(DType result, const LoopSpec& spec) {
  return with_element_type<StoredTypes>(result, [&](auto type) __attribute__((always_inline)) {
    return Loops<Functor, typename decltype(type)::type>::choose(spec, result);
  });
}

}  // namespace
}  // namespace opwheel::cpu::OPWHEEL_ISA

#define OPWHEEL_DETAIL_CHOOSE_LOOP(identifier, Functor, text)                                                 \
  ::opwheel::cpu::Loop2d choose_##identifier(::opwheel::DType result, const ::opwheel::cpu::LoopSpec& spec) { \
    return ::opwheel::cpu::OPWHEEL_ISA::choose_loop<Functor>(result, spec);                                   \
  }
#define OPWHEEL_DETAIL_NO_LOOP(identifier, operator_, text)

// The loops of every operator of the list, for this instruction set.
#define OPWHEEL_CPU_LOOPS(library, LIST)                   \
  namespace library::cpu::OPWHEEL_ISA {                    \
  LIST(OPWHEEL_DETAIL_CHOOSE_LOOP, OPWHEEL_DETAIL_NO_LOOP) \
  }
