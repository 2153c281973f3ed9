// A team of threads that share a row.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "opwheel/detail/combine.h"
#include "opwheel/detail/cuda/cluster.cuh"
#include "opwheel/detail/cuda/held_rows.cuh"
#include "opwheel/detail/cuda/pack.cuh"
#include "opwheel/detail/cuda/team_plan.cuh"

namespace opwheel::cuda {

// Two results of one reduction.
template <class C>
struct Two {
  C a, b;
};

// The threads that share a row of elements of type T. Each has kHeld vectors of kWidth elements; 0: as many as the row
// takes. They are of one block, or of a cluster of them.
template <class T, int kHeld, int kWidth_, class Blocks = detail::OneBlock>
class Team {
 public:
  static constexpr int kWidth = kWidth_;
  using C = ComputeType<T>;
  using Values = Lanes<C, kWidth>;
  using At = detail::At;

  static constexpr bool kHolds = kHeld > 0;

  __device__ Team(int64_t rows, int64_t length, int64_t teams) : rows_(rows), length_(length), teams_(teams) {}

  __device__ int64_t length() const { return length_; }
  // Which of all teams this is. The last block may have some more, which have no rows.
  __device__ int64_t index() const { return int64_t{blockIdx.x / blocks_.count()} * blockDim.y + threadIdx.y; }
  __device__ bool has_rows() const { return index() < teams_; }
  // Whether this thread writes what the row has one of.
  __device__ bool is_first() const { return thread() == 0; }

  // Calls body(row) for each row of this team.
  template <class Body>
  __device__ void for_rows(const Body& body) const {
    if (!has_rows()) return;
    for (int64_t row = index(); row < rows_; row += teams_) body(row);
  }

  // Calls body(at) for each place of a row that is this thread's.
  template <class Body>
  __device__ void for_each(const Body& body) const {
    if constexpr (kHeld > 0) {
      OPWHEEL_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const uint32_t begin = (i * threads() + thread()) * kWidth;  // a row that is held is short
        if (begin < length_) body(At{i, begin});
      }
    } else {
      const int64_t step = int64_t{threads()} * kWidth;
      for (int64_t begin = int64_t{thread()} * kWidth; begin < length_; begin += step) body(At{0, begin});
    }
  }

  // A row, whose elements follow each other: all is loaded before anything is used, where it is held. Null: ones.
  template <class U>
  __device__ auto load(const U* data) const {
    if constexpr (kHeld > 0) {
      detail::HeldRow<U, C, kHeld, kWidth> row;
      if (data == nullptr) {
        OPWHEEL_UNROLL
        for (int i = 0; i < kHeld; ++i) row.vectors[i] = narrowed<U>(Values::all(C(1)));
      } else {
        for_each([&](At at) { row.vectors[at.vector] = loaded<U, kWidth>(data + at.begin); });
      }
      return row;
    } else {
      return detail::ReadRow<U, C, kWidth>{data};
    }
  }

  // Writes values(at), rounded to U, and gives the row that was written.
  template <class U, class Value>
  __device__ auto store(U* data, const Value& values) const {
    if constexpr (kHeld > 0) {
      detail::HeldRow<U, C, kHeld, kWidth> row;
      for_each([&](At at) {
        row.vectors[at.vector] = narrowed<U>(values(at));
        put(data + at.begin, row.vectors[at.vector]);
      });
      return row;
    } else {
      for_each([&](At at) { write(data, at, values(at)); });
      return detail::ReadRow<U, C, kWidth>{data};
    }
  }

  // The same row. Its 16-bit elements are converted again where they are used next: the compiler would keep what it
  // converted for the first use, in twice as many registers, and fewer threads would find room.
  template <class Row>
  __device__ static Row again(const Row& row) {
    Row same = row;
#if defined(__CUDA_ARCH__)
    if constexpr (kHolds) {
      if constexpr (requires { row.vectors[0].words; }) {
        OPWHEEL_UNROLL
        for (int i = 0; i < kHeld; ++i) {
          for (uint32_t& word : same.vectors[i].words) asm volatile("" : "+r"(word));
        }
      }
    }
#endif
    return same;
  }

  // values(at), in the type that is computed in, held like a row. Only where kHolds.
  template <class Value>
  __device__ auto keep(const Value& values) const {
    static_assert(kHolds);
    detail::HeldRow<C, C, kHeld, kWidth> row;
    for_each([&](At at) { row.vectors[at.vector] = narrowed<C>(values(at)); });
    return row;
  }
  // The elements at one place of a row in memory; `at` may be of another row of the same team.
  template <class U>
  __device__ static Values read(const U* data, At at) {
    return widened<C>(loaded<U, kWidth>(data + at.begin));
  }
  template <class U>
  __device__ static void write(U* data, At at, const Values& values) {
    put(data + at.begin, narrowed<U>(values));
  }

  // Sums over rows; `memory`, of the row's length, is the team's own.
  __device__ auto sums(C* memory) const {
    if constexpr (kHeld > 0) {
      detail::HeldSums<C, kHeld, kWidth> sums;
      OPWHEEL_UNROLL
      for (int i = 0; i < kHeld; ++i) sums.vectors[i] = Values::all(C(0));
      return sums;
    } else {
      if (has_rows()) for_each([&](At at) { write(memory, at, Values::all(C(0))); });
      return detail::SumsInMemory<C, kWidth>{memory};
    }
  }
  // Writes them to the memory that they were given.
  template <class Sums>
  __device__ void finish(C* memory, const Sums& sums) const {
    if constexpr (kHeld > 0) {
      if (has_rows()) for_each([&](At at) { write(memory, at, sums.vectors[at.vector]); });
    }
  }

  // Combines values of all threads; each gets the result. `combine` must be associative and commutative. The order is
  // the same in every call.
  template <class Acc, class Combine>
  __device__ Acc combined(Acc value, const Combine& combine) const {
    const unsigned size = blockDim.x;
    if (!Blocks::kIsCluster && size <= kTeamWarp) return in_warp(value, size, combine);
    __shared__ Acc of_warps[kMostOfTeam / kTeamWarp];
    const unsigned lane = threadIdx.x % kTeamWarp, warp = threadIdx.x / kTeamWarp, warps = size / kTeamWarp;
    value = in_warp(value, kTeamWarp, combine);
    // What the reduction before this one left there has been read; a cluster has had a barrier after it.
    if constexpr (!Blocks::kIsCluster) __syncthreads();
    if (lane == 0) of_warps[warp] = value;
    __syncthreads();
    Acc total = of_warps[0];
    for (unsigned i = 1; i < warps; ++i) total = combine(total, of_warps[i]);
    if constexpr (Blocks::kIsCluster) total = blocks_.combined(total, combine);
    return total;
  }

  // Sum of value(at) over a row.
  template <class Value>
  __device__ C sum(const Value& value) const {
    Values mine = Values::all(C(0));
    for_each([&](At at) { mine = mine + value(at); });
    return combined(fold(C(0), mine, Add()), Add());
  }
  // Two sums: value(at) gives a Two of Lanes.
  template <class Value>
  __device__ Two<C> two_sums(const Value& value) const {
    Values first = Values::all(C(0)), second = first;
    for_each([&](At at) {
      const auto more = value(at);
      first = first + more.a;
      second = second + more.b;
    });
    const auto add = [](const Two<C>& x, const Two<C>& y) { return Two<C>{x.a + y.a, x.b + y.b}; };
    return combined(Two<C>{fold(C(0), first, Add()), fold(C(0), second, Add())}, add);
  }
  // The largest of value(at); nan is larger than every number.
  template <class Value>
  __device__ C maximum(C start, const Value& value) const {
    C mine = start;
    for_each([&](At at) { mine = fold(mine, value(at), Larger()); });
    return combined(mine, Larger());
  }

 private:
  // Of the whole team.
  __device__ uint32_t threads() const { return blocks_.count() * blockDim.x; }
  __device__ uint32_t thread() const { return blocks_.rank() * blockDim.x + threadIdx.x; }

  template <class Acc>
  __device__ static Acc other(unsigned mask, const Acc& value, int step) {
    if constexpr (std::is_arithmetic_v<Acc>) {
      return __shfl_xor_sync(mask, value, step);
    } else {
      return {__shfl_xor_sync(mask, value.a, step), __shfl_xor_sync(mask, value.b, step)};
    }
  }
  template <class Acc, class Combine>
  __device__ static Acc in_warp(Acc value, unsigned size, const Combine& combine) {
    const unsigned lane = (threadIdx.x + threadIdx.y * blockDim.x) % kTeamWarp;
    const unsigned mask = size == kTeamWarp ? 0xffffffffu : ((1u << size) - 1) << (lane / size * size);
    for (unsigned step = size / 2; step > 0; step /= 2) value = combine(value, other(mask, value, step));
    return value;
  }

  [[no_unique_address]] Blocks blocks_;
  int64_t rows_, length_, teams_;
};

}  // namespace opwheel::cuda
