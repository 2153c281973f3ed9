// The loops over one row, for one instruction set: a source file defines OPWHEEL_ISA, its flags choose the instructions,
// and this header gives it muladd::cpu::<OPWHEEL_ISA>::choose_rows. All the rest has internal linkage (see row.h).
#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "muladd/arithmetic.h"
#include "row.h"

namespace muladd::cpu::OPWHEEL_ISA {
namespace {

#include "convert.h"

constexpr int64_t kBlock = 512;  // elements computed at a time: all operands' blocks stay in the first-level cache

template <class C>
C first_of(C value) {
  return value;
}
template <class C>
C first_of(Pair<C> value) {
  return value.first;
}
template <class C>
C second_of(C value) {
  return value;
}
template <class C>
C second_of(Pair<C> value) {
  return value.second;
}

// How a functor is called: with `inputs` operands, for `outputs` results.
template <template <class> class Functor>
struct Arity;
template <>
struct Arity<MulAdd> {
  static constexpr int outputs = 1, inputs = 2;
};
template <>
struct Arity<MulAddBackward> {
  static constexpr int outputs = 2, inputs = 3;
};
template <>
struct Arity<Fma> {
  static constexpr int outputs = 1, inputs = 3;
};
template <>
struct Arity<Mul> {
  static constexpr int outputs = 1, inputs = 2;
};
template <>
struct Arity<Add> {
  static constexpr int outputs = 1, inputs = 2;
};
template <>
struct Arity<Scale> {
  static constexpr int outputs = 1, inputs = 1;
};

template <class F>
F make(const RowSpec& spec) {
  if constexpr (requires { F(spec.parameter); }) {
    return F(spec.parameter);
  } else {
    return F();
  }
}

template <template <class> class Functor, class T>
struct Loops {
  using C = typename Compute<T>::type;
  using F = Functor<C>;
  static constexpr int kOutputs = Arity<Functor>::outputs, kInputs = Arity<Functor>::inputs;
  static constexpr int64_t kSize = sizeof(T);

  // Bit i of `repeated`: input i is one value for the whole row. No conversions: T is C.
  template <unsigned repeated>
  static void contiguous(const RowSpec& spec, char* const* data, int64_t n) {
    const F functor = make<F>(spec);
    const C* in[kInputs];
    for (int i = 0; i < kInputs; ++i) in[i] = reinterpret_cast<const C*>(data[kOutputs + i]);
    compute<repeated>(functor, in, reinterpret_cast<C*>(data[0]), reinterpret_cast<C*>(data[kOutputs - 1]), n);
  }

  template <unsigned repeated>
  static void compute(const F& functor, const C* const* in, C* first, C* second, int64_t n) {
    const C* const inputs[3] = {in[0], in[kInputs > 1 ? 1 : 0], in[kInputs > 2 ? 2 : 0]};
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      C values[kInputs];
      for (int k = 0; k < kInputs; ++k) values[k] = inputs[k][repeated >> k & 1 ? 0 : i];
      const auto value = apply(functor, values);
      first[i] = first_of(value);
      if constexpr (kOutputs == 2) second[i] = second_of(value);
    }
  }

  // One type, side by side or repeated, straight from memory to memory: with conversions, or past the caches.
  static void vectors(const RowSpec& spec, char* const* data, int64_t n) {
    const bool stream = spec.stream && can_stream(spec, data);
    if (kIs<T, C> && !stream) return blocks(spec, data, n, 1);
    constexpr int64_t kLanes = kWidth / sizeof(C);
    T repeated[kInputs][kLanes];
    const T* in[kInputs];
    int64_t steps[kInputs];
    for (int k = 0; k < kInputs; ++k) {
      in[k] = reinterpret_cast<const T*>(data[kOutputs + k]);
      steps[k] = spec.steps[kOutputs + k] == 0 ? 0 : 1;
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
  static void vector_loop(const RowSpec& spec, char* const* data, const T* const* in, const int64_t* steps,
                          int64_t begin, int64_t end) {
    using V = typename VectorOf<C>::type;
    const auto functor = make_vector(spec);
    const auto put = [](T* to, V value) {
      const auto narrowed = narrow_vector<T>(value);
      stream ? stream_vector(to, narrowed) : store_vector(to, narrowed);
    };
    T* const first = reinterpret_cast<T*>(data[0]);
    T* const second = reinterpret_cast<T*>(data[kOutputs - 1]);
    for (int64_t i = begin; i < end; i += kWidth / sizeof(C)) {
      V values[kInputs];
      for (int k = 0; k < kInputs; ++k) values[k] = widen_vector(in[k] + i * steps[k]);
      const auto value = apply(functor, values);
      put(first + i, first_of(value));
      if constexpr (kOutputs == 2) put(second + i, second_of(value));
    }
  }

  static auto make_vector(const RowSpec& spec) {
    using V = typename VectorOf<C>::type;
    if constexpr (requires { F(spec.parameter); }) {
      V parameter;
      for (int64_t i = 0; i < kWidth / static_cast<int64_t>(sizeof(C)); ++i)
        parameter[i] = static_cast<C>(spec.parameter);
      return Functor<V>(parameter);
    } else {
      return Functor<V>();
    }
  }

  template <class G, class V>
  static auto apply(const G& functor, const V* values) {
    if constexpr (kInputs == 1) {
      return functor(values[0]);
    } else if constexpr (kInputs == 2) {
      return functor(values[0], values[1]);
    } else {
      return functor(values[0], values[1], values[2]);
    }
  }

  static void some(const RowSpec& spec, char* const* data, int64_t begin, int64_t end) {
    char* at[kOutputs + kInputs];
    for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k] + begin * spec.steps[k];
    strided(spec, at, end - begin);
  }

  // Outputs and inputs in any type, order and repetition: inputs are brought into blocks of C, results leave from one.
  static void blocked(const RowSpec& spec, char* const* data, int64_t n, int64_t rows) {
    blocks(spec, data, n, rows);
    if (spec.stream) finish_streaming();
  }

  static void blocks(const RowSpec& spec, char* const* data, int64_t n, int64_t rows) {
    const F functor = make<F>(spec);
    alignas(kLine) C blocks[kInputs][kBlock];
    alignas(kLine) C results[2][kBlock];
    const C* whole[kInputs] = {};  // short rows that are the same each time are brought in once
    char* at[kOutputs + kInputs];
    for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k];
    for (int64_t row = 0; row < rows; ++row) {
      for (int k = 0; k < kInputs; ++k) {
        const int operand = kOutputs + k;
        const bool is_new = row == 0 || spec.row_steps[operand] != 0;
        if (spec.steps[operand] == 0) {
          if (is_new) fill(blocks[k], spec, at, k, n < kBlock ? n : kBlock);
        } else if (spec.row_steps[operand] == 0 && n <= kBlock && is_new) {
          whole[k] = load(blocks[k], spec, at, k, 0, n);
        }
      }
      const bool stream = spec.stream && can_stream(spec, at);
      // Up to the first whole cache line of the result, and then block by block.
      int64_t begin = 0, length = stream ? until_aligned(at[0]) : kBlock;
      for (; begin < n; begin += length, length = kBlock) {
        if (length == 0) continue;
        if (length > n - begin) length = n - begin;
        const C* in[kInputs];
        for (int k = 0; k < kInputs; ++k) {
          in[k] = spec.steps[kOutputs + k] == 0 ? blocks[k]
                  : whole[k] != nullptr         ? whole[k] + begin
                                                : load(blocks[k], spec, at, k, begin, length);
        }
        compute<0>(functor, in, results[0], results[1], length);
        for (int k = 0; k < kOutputs; ++k)
          store(at[k] + begin * spec.steps[k], spec.steps[k], results[k], length, stream);
      }
      for (int k = 0; k < kOutputs + kInputs; ++k) at[k] += spec.row_steps[k];
    }
  }

  static bool can_stream(const RowSpec& spec, char* const* data) {
    for (int k = 0; k < kOutputs; ++k) {
      const bool is_aligned = reinterpret_cast<uintptr_t>(data[k]) % kSize == 0;
      if (spec.steps[k] != kSize || !is_aligned || until_aligned(data[k]) != until_aligned(data[0])) return false;
    }
    return true;
  }
  static int64_t until_aligned(const char* data) {
    return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(data) % kLine) / kSize;
  }
  static void finish_streaming() {
#if defined(__x86_64__)
    _mm_sfence();  // before other threads may be told that the result is there
#endif
  }

  template <void (*row)(const RowSpec&, char* const*, int64_t)>
  static void each(const RowSpec& spec, char* const* data, int64_t n, int64_t rows) {
    char* at[kOutputs + kInputs];
    for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k];
    while (true) {
      row(spec, at, n);
      if (--rows == 0) break;
      for (int k = 0; k < kOutputs + kInputs; ++k) at[k] += spec.row_steps[k];
    }
    if (spec.stream) finish_streaming();
  }

  // Rows of which an operand has neighbours across, not along: a transposed one. In tiles each of its cache lines is
  // fetched once for all the rows that have an element in it.
  static void tiled(const RowSpec& spec, char* const* data, int64_t n, int64_t rows) {
    constexpr int64_t kTileRows = kLine / kSize, kTileLength = 64;
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const int64_t tile_rows = rows - row < kTileRows ? rows - row : kTileRows;
      for (int64_t i = 0; i < n; i += kTileLength) {
        char* at[kOutputs + kInputs];
        for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k] + row * spec.row_steps[k] + i * spec.steps[k];
        blocks(spec, at, n - i < kTileLength ? n - i : kTileLength, tile_rows);
      }
    }
    if (spec.stream) finish_streaming();
  }

  static void fill(C* block, const RowSpec& spec, char* const* data, int k, int64_t n) {
    C value = *load(block, spec, data, k, 0, 1);
    for (int64_t i = 0; i < n; ++i) block[i] = value;
  }

  static const C* load(C* block, const RowSpec& spec, char* const* data, int k, int64_t begin, int64_t n) {
    const int64_t step = spec.steps[kOutputs + k];
    const char* from = data[kOutputs + k] + begin * step;
    switch (spec.types[kOutputs + k]) {
      case Type::float16:
        return load_as<Half>(block, from, step, n);
      case Type::bfloat16:
        return load_as<BFloat16>(block, from, step, n);
      case Type::float32:
        return load_as<float>(block, from, step, n);
      default:
        return load_as<double>(block, from, step, n);
    }
  }

  template <class From>
  static const C* load_as(C* block, const char* from, int64_t step, int64_t n) {
    if (step == sizeof(From)) {
      if constexpr (kIs<From, C>) {
        return reinterpret_cast<const C*>(from);
      } else {
        widen_block(block, reinterpret_cast<const From*>(from), n);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        block[i] = static_cast<C>(widen(*reinterpret_cast<const From*>(from + i * step)));
      }
    }
    return block;
  }

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

  // One type, any steps, few elements or none that lie side by side: no block pays.
  static void strided(const RowSpec& spec, char* const* data, int64_t n) {
    const F functor = make<F>(spec);
    char* at[kOutputs + kInputs];
    for (int k = 0; k < kOutputs + kInputs; ++k) at[k] = data[k];
    for (int64_t i = 0; i < n; ++i) {
      C values[kInputs];
      for (int k = 0; k < kInputs; ++k) values[k] = widen(*reinterpret_cast<const T*>(at[kOutputs + k]));
      const auto value = apply(functor, values);
      *reinterpret_cast<T*>(at[0]) = narrow<T>(first_of(value));
      if constexpr (kOutputs == 2) *reinterpret_cast<T*>(at[1]) = narrow<T>(second_of(value));
      for (int k = 0; k < kOutputs + kInputs; ++k) at[k] += spec.steps[k];
    }
  }

  static int64_t size_of(int64_t step) { return step < 0 ? -step : step; }

  static Rows choose(const RowSpec& spec, Type type) {
    bool one_type = true, side_by_side = true, across = false;
    unsigned repeated = 0;
    for (int k = 0; k < kOutputs + kInputs; ++k) {
      const bool is_repeated = k >= kOutputs && spec.steps[k] == 0;
      one_type &= spec.types[k] == type;
      side_by_side &= spec.steps[k] == kSize || is_repeated;
      if (is_repeated) repeated |= 1u << (k - kOutputs);
      across |= size_of(spec.row_steps[k]) != 0 && size_of(spec.row_steps[k]) < size_of(spec.steps[k]);
    }
    if (across) return &tiled;
    if (one_type && !side_by_side) return &each<strided>;
    if constexpr (kIs<T, C>) {
      if (one_type) return spec.stream ? &each<vectors> : choose_repeated<0>(repeated);
    } else if constexpr (kHasVectors<T>) {
      if (one_type) return &each<vectors>;
    }
    return &blocked;
  }

  template <unsigned candidate>
  static Rows choose_repeated(unsigned repeated) {
    if constexpr (candidate + 1 < 1u << kInputs) {
      if (repeated != candidate) return choose_repeated<candidate + 1>(repeated);
    }
    return &each<contiguous<candidate>>;
  }
};

template <template <class> class Functor>
Rows choose_for(Type result, const RowSpec& spec) {
  switch (result) {
    case Type::float16:
      return Loops<Functor, Half>::choose(spec, result);
    case Type::bfloat16:
      return Loops<Functor, BFloat16>::choose(spec, result);
    case Type::float32:
      return Loops<Functor, float>::choose(spec, result);
    case Type::float64:
      return Loops<Functor, double>::choose(spec, result);
  }
  __builtin_unreachable();
}

}  // namespace

Rows choose_rows(Function function, Type result, const RowSpec& spec) {
  switch (function) {
    case Function::muladd:
      return choose_for<MulAdd>(result, spec);
    case Function::muladd_backward:
      return choose_for<MulAddBackward>(result, spec);
    case Function::fma:
      return choose_for<Fma>(result, spec);
    case Function::mul:
      return choose_for<Mul>(result, spec);
    case Function::add:
      return choose_for<Add>(result, spec);
    case Function::scale:
      return choose_for<Scale>(result, spec);
  }
  __builtin_unreachable();
}

}  // namespace muladd::cpu::OPWHEEL_ISA
