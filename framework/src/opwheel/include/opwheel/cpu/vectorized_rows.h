// What kernels over rows are written with, for one instruction set.
//
// A source file defines OPWHEEL_ISA and is compiled with the flags of that instruction set. Its kernels are functions of
// plain pointers in a namespace of the library's, library::cpu::<OPWHEEL_ISA>, which a table hands to the source file
// that registers operators (opwheel/cpu/row_kernels.h). All of this has internal linkage, because the same templates are
// compiled with other flags, too (opwheel/cpu/loop.h).
//
// T is what elements are in memory: Half, BFloat16, float or double; C = Compute<T> what they are computed in: float,
// or double. A kernel reads a row by load(), which converts it into a buffer where T is not C, computes with loops that
// the compiler vectorises, and writes it by store():
//
//     x  --load-->  const C*  ->  sum(), exp() ...  ->  C*  --store-->  y
#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// A loop whose iterations are independent of each other: results may be the very elements of an input, never others.
#define OPWHEEL_INDEPENDENT _Pragma("GCC ivdep")

namespace opwheel::cpu::OPWHEEL_ISA {
namespace {

#ifndef OPWHEEL_DETAIL_CONVERT
#define OPWHEEL_DETAIL_CONVERT
#include "convert.h"
#endif
#include "vector_math.h"

template <class T>
using ComputeType = typename Compute<T>::type;

// The sum of value(0) ... value(n - 1), as many partial sums as a register holds. Inlined, always: GCC vectorises it only
// where it sees what `value` does.
template <class C, class Value>
__attribute__((always_inline)) inline C sum(int64_t n, const Value& value) {
  C total = C(0);
#pragma omp simd reduction(+ : total)
  for (int64_t k = 0; k < n; ++k) total += value(k);
  return total;
}
// The largest, of numbers: whether nan counts is not defined.
template <class C, class Value>
__attribute__((always_inline)) inline C maximum(int64_t n, C start, const Value& value) {
  C largest = start;
#pragma omp simd reduction(max : largest)
  for (int64_t k = 0; k < n; ++k) largest = value(k) > largest ? value(k) : largest;
  return largest;
}

// A row of n elements as C: where they are, or converted into `buffer`.
template <class T>
inline const ComputeType<T>* load(const T* row, ComputeType<T>* buffer, int64_t n) {
  if constexpr (kIs<T, ComputeType<T>>) {
    return row;
  } else {
    widen_block(buffer, row, n);
    return buffer;
  }
}

// Where a row of results is computed: in its place, or in `buffer`, for store() to round it.
template <class T>
inline ComputeType<T>* place(T* row, ComputeType<T>* buffer) {
  if constexpr (kIs<T, ComputeType<T>>) {
    return row;
  } else {
    return buffer;
  }
}
template <class T>
inline void store(T* row, const ComputeType<T>* values, int64_t n) {
  if constexpr (!kIs<T, ComputeType<T>>) narrow_block(row, values, n);
}
// Rounds values to T where they are, as if they had been stored and read again.
template <class T>
inline void round_to(ComputeType<T>* values, int64_t n) {
  if constexpr (!kIs<T, ComputeType<T>>) {
    constexpr int64_t kBlock = 512;
    T block[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t length = n - begin < kBlock ? n - begin : kBlock;
      narrow_block(block, values + begin, length);
      widen_block(values + begin, block, length);
    }
  }
}

// Memory for one row, aligned to a cache line. Not initialised.
template <class C>
struct Buffer {
  C* data;
  explicit Buffer(int64_t n) : data(allocate(static_cast<std::size_t>(n) * sizeof(C))) {}
  Buffer(const Buffer&) = delete;
  ~Buffer() { __builtin_free(data); }

 private:
  static C* allocate(std::size_t bytes) {
    return static_cast<C*>(__builtin_aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine));
  }
};

}  // namespace
}  // namespace opwheel::cpu::OPWHEEL_ISA
