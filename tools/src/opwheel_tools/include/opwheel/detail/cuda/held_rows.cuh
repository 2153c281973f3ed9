// Rows as a team of threads has them: in its registers, or in memory that each use reads again.
#pragma once

#include <cstdint>

#include "opwheel/detail/cuda/pack.cuh"

namespace opwheel::cuda {

namespace detail {

// A place in a row: the number of the thread's vector, and the row's element that it begins with.
struct At {
  int vector;
  int64_t begin;
};

// A row of elements of type U in the registers of a team.
template <class U, class C, int kHeld, int kWidth>
struct HeldRow {
  Pack<U, kWidth> vectors[kHeld];
  __device__ Lanes<C, kWidth> operator[](At at) const { return widened<C>(vectors[at.vector]); }
};
// A row of which each use reads memory. Without memory: ones.
template <class U, class C, int kWidth>
struct ReadRow {
  const U* data;
  __device__ Lanes<C, kWidth> operator[](At at) const {
    if (data == nullptr) return Lanes<C, kWidth>::all(C(1));
    return widened<C>(loaded<U, kWidth>(data + at.begin));
  }
};

// Sums of a team's rows, element by element: in registers, or in memory that the team has for itself.
template <class C, int kHeld, int kWidth>
struct HeldSums {
  Lanes<C, kWidth> vectors[kHeld];
  __device__ void add(At at, const Lanes<C, kWidth>& more) { vectors[at.vector] = vectors[at.vector] + more; }
};
template <class C, int kWidth>
struct SumsInMemory {
  C* data;
  __device__ void add(At at, const Lanes<C, kWidth>& more) {
    put(data + at.begin, narrowed<C>(widened<C>(loaded<C, kWidth>(data + at.begin)) + more));
  }
};

}  // namespace detail

}  // namespace opwheel::cuda
