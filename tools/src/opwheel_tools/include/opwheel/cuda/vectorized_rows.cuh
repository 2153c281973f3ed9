// Loops over rows on a CUDA device in vectors of 16 bytes, for kernels that have to be as fast as memory. A team of
// threads works on a row: a part of a warp, a warp or a block, as the row's length wants it. Where the row fits into
// the team's registers, memory is read once; else it is read again for each use, mostly from the cache. A kernel is a
// functor that takes the team, whatever it is, and goes through the team's rows:
//
//     template <class T>
//     struct Normalize {
//       static constexpr int kHeld = 4;  // vectors that a thread holds at most
//
//       const T *x, *weight;
//       T* y;
//       int64_t length;
//
//       template <class Team>
//       __device__ void operator()(const Team& team) const {
//         using C = opwheel::ComputeType<T>;
//         const auto w = team.load(weight);  // stays in registers for all rows
//         team.for_rows([&](int64_t i) {
//           const auto row = team.load(x + i * length);
//           const C squares = team.sum([&](auto at) { return row[at] * row[at]; });
//           const C r = 1 / std::sqrt(squares / C(length));
//           team.store(y + i * length, [&](auto at) { return row[at] * r * w[at]; });
//         });
//       }
//     };
//
//     const cuda::TeamPlan plan(device, rows, length, sizeof(T), cuda::are_aligned<T>(length, {x, weight, y}), 4);
//     cuda::run_teams<T>(plan, Normalize<T>{x, weight, y, length});
//
// row[at] is the few elements at a place of the row, converted to the type that is computed in (Lanes): they have the
// arithmetic of one number, and map() applies a function to each. Threads of a team must make the same calls of sum,
// two_sums, maximum and combined. What one of them writes is read by itself alone.
#pragma once

#if defined(__HIPCC__)
#error "opwheel/cuda/vectorized_rows.cuh is for CUDA, whose warps have 32 threads; write this kernel for ROCm by hand"
#endif

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "opwheel/cuda/enqueue.cuh"
#include "opwheel/detail/cuda/vector.h"

// IWYU pragma: begin_exports
#include "opwheel/detail/combine.h"
#include "opwheel/detail/cuda/pack.cuh"
#include "opwheel/detail/cuda/stream.h"
// IWYU pragma: end_exports

namespace opwheel::cuda {

constexpr int kTeamWarp = 32;
constexpr int kMostOfTeam = 512;  // threads of a team; two blocks of them leave each thread 64 registers
constexpr int64_t kMostBlocks = int64_t{1} << 30;
constexpr int64_t kAnyNumber = -1;
constexpr int kShortBlock = 128;  // threads of a block whose teams are parts of a warp
// Bytes of the largest elements that are taken in vectors, and held. Rows of double are read one by one: most devices
// compute with it more slowly than they read it, and its kernels would be a quarter of a library.
constexpr int kLargestElement = 4;

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
    return widened<C>(*reinterpret_cast<const Pack<U, kWidth>*>(data + at.begin));
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
    auto& place = *reinterpret_cast<Pack<C, kWidth>*>(data + at.begin);
    place = narrowed<C>(widened<C>(place) + more);
  }
};

}  // namespace detail

// Two results of one reduction.
template <class C>
struct Two {
  C a, b;
};

// The threads that share a row of elements of type T. Each has kHeld vectors of kWidth elements; 0: as many as the row
// takes.
template <class T, int kHeld, int kWidth_>
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
  __device__ int64_t index() const { return int64_t{blockIdx.x} * blockDim.y + threadIdx.y; }
  __device__ bool has_rows() const { return index() < teams_; }
  // Whether this thread writes what the row has one of.
  __device__ bool is_first() const { return threadIdx.x == 0; }

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
        const uint32_t begin = (i * blockDim.x + threadIdx.x) * kWidth;  // a row that is held is short
        if (begin < length_) body(At{i, begin});
      }
    } else {
      const int64_t step = int64_t{blockDim.x} * kWidth;
      for (int64_t begin = int64_t{threadIdx.x} * kWidth; begin < length_; begin += step) body(At{0, begin});
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
        for_each([&](At at) { row.vectors[at.vector] = *reinterpret_cast<const Pack<U, kWidth>*>(data + at.begin); });
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
        put(data, at, row.vectors[at.vector]);
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
    return widened<C>(*reinterpret_cast<const Pack<U, kWidth>*>(data + at.begin));
  }
  template <class U>
  __device__ static void write(U* data, At at, const Values& values) {
    put(data, at, narrowed<U>(values));
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
    if (size <= kTeamWarp) return in_warp(value, size, combine);
    __shared__ Acc of_warps[kMostOfTeam / kTeamWarp];
    const unsigned lane = threadIdx.x % kTeamWarp, warp = threadIdx.x / kTeamWarp, warps = size / kTeamWarp;
    value = in_warp(value, kTeamWarp, combine);
    __syncthreads();  // what the reduction before this one left there has been read
    if (lane == 0) of_warps[warp] = value;
    __syncthreads();
    Acc total = of_warps[0];
    for (unsigned i = 1; i < warps; ++i) total = combine(total, of_warps[i]);
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
  template <class U>
  __device__ static void put(U* data, At at, const Pack<U, kWidth>& pack) {
    *reinterpret_cast<Pack<U, kWidth>*>(data + at.begin) = pack;
  }

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

  int64_t rows_, length_, teams_;
};

// Whether vectors of 16 bytes of T can be taken from rows of this length that begin at these addresses (null: none),
// `strides` elements apart.
template <class T>
bool are_aligned(int64_t length, std::initializer_list<const void*> data, std::initializer_list<int64_t> strides = {}) {
  constexpr int64_t width = kVectorBytes / sizeof(T);
  return length % width == 0 &&
         std::all_of(data.begin(), data.end(),
                     [](const void* one) { return reinterpret_cast<uintptr_t>(one) % kVectorBytes == 0; }) &&
         std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride % width == 0; });
}

// How many a device has, which decides how many teams there are.
inline int64_t multiprocessors(Device device) {
  int count = 0;
  check_launch(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index));
  return std::max(count, 1);
}

// How teams are made for rows of some length: how many, of how many threads, holding how many vectors each.
struct TeamPlan {
  Device device;
  int64_t rows, length;
  bool has_vectors;
  int held = 0;           // vectors of a thread; 0: as many as the row takes
  uint32_t threads = 0;   // of a team
  uint32_t in_block = 1;  // teams
  int64_t blocks = 0;
  int64_t teams = 0;  // that rows are shared out to

  // `element_bytes`: of T, the type that the kernel's vectors are made of; `most_held`: the functor's kHeld;
  // `resident`: threads that a multiprocessor is to have at a time, whose teams have several rows each; kAnyNumber: a
  // team each.
  TeamPlan(Device device, int64_t rows, int64_t length, int64_t element_bytes, bool is_aligned, int most_held,
           int64_t resident = kAnyNumber)
      : device(device), rows(rows), length(length), has_vectors(is_aligned && element_bytes <= kLargestElement) {
    const int64_t width = has_vectors ? kVectorBytes / element_bytes : 1;
    const int64_t vectors = (length + width - 1) / width;
    held = !has_vectors || vectors > most_held * kMostOfTeam ? 0 : vectors <= kTeamWarp ? 1 : most_held;
    const int64_t wanted = held == 0 ? (vectors + 3) / 4 : (vectors + held - 1) / held;
    threads = 1;
    while (threads < kTeamWarp && threads < wanted) threads *= 2;
    if (wanted > kTeamWarp) {
      threads = static_cast<uint32_t>(std::min<int64_t>((wanted + kTeamWarp - 1) / kTeamWarp * kTeamWarp, kMostOfTeam));
    }
    if (threads <= kTeamWarp) in_block = kShortBlock / threads;
    const int64_t of_block = int64_t{threads} * in_block, needed = (rows + in_block - 1) / in_block;
    blocks = std::min(needed, kMostBlocks);
    if (resident != kAnyNumber) {
      blocks = std::min(blocks, multiprocessors(device) * std::max<int64_t>(resident / of_block, 1));
    }
    teams = std::min(blocks * in_block, rows);
  }

  // Shares the rows out to so many teams instead.
  void set_teams(int64_t count) {
    teams = count;
    blocks = (count + in_block - 1) / in_block;
  }
};

namespace detail {

template <class Team, class F>
__global__ void __launch_bounds__(kMostOfTeam) run_team(const F functor, int64_t rows, int64_t length, int64_t teams) {
  functor(Team(rows, length, teams));
}

template <class Team, class F>
void launch_team(const TeamPlan& plan, const F& functor, void* stream) {
  int64_t rows = plan.rows, length = plan.length, teams = plan.teams;
  void* arguments[] = {const_cast<F*>(&functor), &rows, &length, &teams};
  launch(&run_team<Team, F>, dim3(static_cast<uint32_t>(plan.blocks)), dim3(plan.threads, plan.in_block), arguments,
         stream);
}

}  // namespace detail

// Runs functor(team) in all teams, on PyTorch's current stream of the device, and does not wait. The functor is copied
// to the device: its pointers must be to the device's memory.
template <class T, class F>
void run_teams(const TeamPlan& plan, const F& functor) {
  if (plan.rows == 0) return;
  launching([&] {
    constexpr int width = kVectorBytes / sizeof(T);
    const CurrentStream stream(plan.device.index);
    if constexpr (sizeof(T) <= kLargestElement) {
      if (plan.has_vectors) {
        if (plan.held == 0) return detail::launch_team<Team<T, 0, width>>(plan, functor, stream.get());
        if (plan.held == 1) return detail::launch_team<Team<T, 1, width>>(plan, functor, stream.get());
        if constexpr (F::kHeld > 1) {
          return detail::launch_team<Team<T, F::kHeld, width>>(plan, functor, stream.get());
        }
      }
    }
    detail::launch_team<Team<T, 0, 1>>(plan, functor, stream.get());
  });
}

}  // namespace opwheel::cuda
