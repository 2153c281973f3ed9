// Loops over rows on a CUDA device, under the names that they have on the host (opwheel/cpu/rows.h). A block of threads
// works on one row at a time: its threads share the row's elements and combine what they find. A kernel is a functor
// and a launch, in a .cu file:
//
//     namespace cuda = opwheel::cuda;  // within a namespace: there is a ::cuda in NVIDIA's headers
//
//     template <class T>
//     struct Normalize {
//       const T* x;
//       T* y;
//       int64_t length;
//
//       __device__ void operator()(int64_t row) const {
//         using Acc = opwheel::Accumulate<T>;
//         const T* in = x + row * length;
//         const Acc squares = cuda::sum<Acc>(length, [&](int64_t k) { return Acc(in[k]) * Acc(in[k]); });
//         cuda::for_each(length, [&](int64_t k) { y[row * length + k] = T(Acc(in[k]) / std::sqrt(squares)); });
//       }
//     };
//
//     cuda::for_rows(device_of(x), rows, length, Normalize<T>{data<T>(x), data<T>(y), length});
//
// The functor's namespace has a name: for one that has none, nvcc 13.0 gives the C++ compiler wrong code.
//
// All threads of a block must make the same calls of reduce, sum, maximum and barrier: none of these may depend on the
// thread, as the function that is given to for_each does.
#pragma once

#if defined(__HIPCC__)
#error "opwheel/cuda/rows.cuh is for CUDA, whose warps have 32 threads; write this kernel for ROCm by hand"
#endif

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "opwheel/cuda/enqueue.cuh"
#include "opwheel/detail/row_groups.h"

// IWYU pragma: begin_exports
#include "opwheel/detail/combine.h"
#include "opwheel/detail/cuda/stream.h"
#include "opwheel/detail/row_functor.h"
// IWYU pragma: end_exports

namespace opwheel::cuda {

using opwheel::Scratch;

constexpr int kWarp = 32;
constexpr int kMostThreads = 512;  // in a block

// Waits until all threads of the block have come here. What they wrote before, all read behind it.
__device__ inline void barrier() { __syncthreads(); }

// Calls element(k) for 0 <= k < length, each in one thread of the block.
template <class Element>
__device__ void for_each(int64_t length, const Element& element) {
  for (int64_t k = threadIdx.x; k < length; k += blockDim.x) element(k);
}

namespace detail {

template <class Acc, class Combine>
__device__ Acc reduce_warp(Acc value, const Combine& combine) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// What each warp of the block has found: the same memory for all reductions of a kernel.
template <class Acc>
__device__ Acc* results_of_warps() {
  __shared__ Acc of_warps[kMostThreads / kWarp];
  return of_warps;
}

template <class Acc, class Combine>
__device__ Acc reduce_block(Acc value, Acc start, const Combine& combine) {
  Acc* const of_warps = results_of_warps<Acc>();
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = reduce_warp(value, combine);
  barrier();  // the reduction before this one has been read
  if (lane == 0) of_warps[warp] = value;
  barrier();
  return reduce_warp(lane < blockDim.x / kWarp ? of_warps[lane] : start, combine);
}

}  // namespace detail

// Combines value(0) ... value(count - 1); every thread of the block gets the result. `combine` must be associative and
// commutative, `start` neutral. The order is the same in every call.
template <class Acc, class Value, class Combine>
__device__ Acc reduce(int64_t count, Acc start, const Value& value, const Combine& combine) {
  constexpr int kAtOnce = 4;  // are loaded before they are combined
  const int64_t step = blockDim.x;
  int64_t k = threadIdx.x;
  Acc mine = start;
  for (; k + (kAtOnce - 1) * step < count; k += kAtOnce * step) {
    Acc some[kAtOnce];
    OPWHEEL_UNROLL
    for (int i = 0; i < kAtOnce; ++i) some[i] = static_cast<Acc>(value(k + i * step));
    OPWHEEL_UNROLL
    for (int i = 0; i < kAtOnce; ++i) mine = combine(mine, some[i]);
  }
  for (; k < count; k += step) mine = combine(mine, static_cast<Acc>(value(k)));
  return detail::reduce_block(mine, start, combine);
}

#define OPWHEEL_DETAIL_REDUCTION __device__
#include "opwheel/detail/reductions.inc.h"

namespace detail {

template <class F>
__global__ void __launch_bounds__(kMostThreads) run_rows(const F functor, int64_t rows, int64_t length, void* scratch) {
  using T = ScratchElement<F>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    if constexpr (std::is_void_v<T>) {
      functor(row);
    } else {
      __shared__ T on_chip[kOnChipBytes / sizeof(T)];
      functor(row, Scratch<T>{scratch == nullptr ? on_chip : static_cast<T*>(scratch) + blockIdx.x * length});
      barrier();  // before the next row is written there
    }
  }
}

}  // namespace detail

// Calls functor(row), or functor(row, Scratch<T>), for 0 <= row < rows on PyTorch's current stream of the device, and
// does not wait. `length` is that of a row: of Scratch; a block's number of threads depends on it. The functor is
// copied to the device: its pointers must be to the device's memory.
template <class F>
void for_rows(Device device, int64_t rows, int64_t length, const F& functor) {
  if (rows == 0) return;
  launching([&] {
    const CurrentStream stream(device.index);
    RowGroups blocks = row_groups<F>(device, rows, length);
    const auto threads = static_cast<uint32_t>(threads_for(length, kWarp, kMostThreads));
    void* arguments[] = {const_cast<F*>(&functor), &rows, &length, &blocks.scratch};
    launch(&detail::run_rows<F>, dim3(static_cast<uint32_t>(blocks.count)), dim3(threads), arguments, stream.get());
  });
}

}  // namespace opwheel::cuda
