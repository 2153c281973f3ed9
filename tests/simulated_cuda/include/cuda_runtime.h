// What device code needs of CUDA, for the C++ compiler: a kernel is a function that is called once for each thread of
// the grid, when the work before it on the stream is done. The blocks come one after the other, those of a cluster take
// turns (runtime/clusters.cpp); in a block each thread runs until it waits for others (runtime/blocks.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#undef __global__
#define __global__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __device__
#define __device__
#undef __host__
#define __host__
#undef __shared__
#define __shared__ static thread_local

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace simulated_cuda {

// In libcudart.so. What is put on a stream is done in this order, by a thread of the stream's own.
cudaError_t submit(cudaStream_t stream, std::function<void()> work);
// A device cannot reach the memory of the other one. An error is also what cudaGetLastError() gives next.
cudaError_t check_addresses(const void* parameters, std::size_t bytes);
// Whether kernels are not run at all, nor their arguments checked.
bool launches_do_nothing();

// What a kernel does with the other threads of its block (runtime/runtime.h).
void run_block(unsigned threads, bool last_first, const std::function<void(unsigned)>& thread);
void wait_for_block();
std::uint64_t exchange(std::uint64_t value, unsigned source, unsigned mask);
[[noreturn]] void fail_assertion(const char* condition);

// Clusters of blocks, and what a kernel does in them (runtime/runtime.h).
cudaError_t check_clusters(cudaStream_t stream, dim3 grid, unsigned blocks);
void run_clusters(unsigned clusters, unsigned blocks, unsigned threads,
                  const std::function<const char*(unsigned block)>& begin, const std::function<void(unsigned)>& thread);
unsigned rank_in_cluster();
unsigned blocks_of_cluster();
void wait_for_cluster();
void* address_in_cluster(const void* mine, unsigned rank);

template <class... Parameters>
cudaError_t check_all(const Parameters&... parameters) {
  cudaError_t error = cudaSuccess;
  static_cast<void>(((error = check_addresses(&parameters, sizeof parameters), error == cudaSuccess) && ...));
  return error;
}

template <class Thread>
void run_grid(dim3 grid, dim3 block, const Thread& thread) {
  gridDim = grid;
  blockDim = block;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
        run_block(block.x * block.y * block.z, blockIdx.x % 2 == 1, [&](unsigned i) {
          threadIdx = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
          thread();
        });
}

// The same for blocks in a line, `blocks` of them in each cluster.
template <class Thread>
void run_grid_of_clusters(dim3 grid, unsigned blocks, dim3 block, const Thread& thread) {
  const auto begin = [&](unsigned index) {
    gridDim = grid;
    blockDim = block;
    blockIdx = dim3(index, 0, 0);
    return reinterpret_cast<const char*>(&threadIdx);
  };
  run_clusters(grid.x / blocks, blocks, block.x * block.y * block.z, begin, [&](unsigned i) {
    threadIdx = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
    thread();
  });
}

inline unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

// The value of another lane of the warp.
template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const dim3 me = threadIdx;
  bits = exchange(bits, source, mask);
  threadIdx = me;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// kernel<<<grid, block, shared, stream>>>(arguments...) is rewritten to launch(...)(arguments...).
template <class Kernel>
auto launch(const Kernel& kernel, dim3 grid, dim3 block, std::size_t = 0, cudaStream_t stream = nullptr) {
  return [=](const auto&... arguments) {
    if (launches_do_nothing() || check_all(arguments...) != cudaSuccess) return;
    submit(stream, [=] { run_grid(grid, block, [&] { kernel(arguments...); }); });
  };
}

}  // namespace simulated_cuda

inline void __syncthreads() {
  const dim3 me = threadIdx;
  simulated_cuda::wait_for_block();
  threadIdx = me;
}

// As CUDA has them: the value of the lane itself where the other one is not among the same `width` lanes.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned lanes, unsigned width = 32) {
  const unsigned me = simulated_cuda::lane(), source = me ^ lanes;
  return simulated_cuda::shuffle(mask, value, source / width == me / width ? source : me);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, unsigned width = 32) {
  const unsigned me = simulated_cuda::lane(), source = me + lanes;
  return simulated_cuda::shuffle(mask, value, source / width == me / width ? source : me);
}

// The arguments are copied, as they are by a launch.
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments, std::size_t,
                             cudaStream_t stream) {
  if (simulated_cuda::launches_do_nothing()) return cudaSuccess;
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::tuple<std::decay_t<Parameters>...> copies(*static_cast<std::decay_t<Parameters>*>(arguments[I])...);
    const cudaError_t error = simulated_cuda::check_all(std::get<I>(copies)...);
    if (error != cudaSuccess) return error;
    return simulated_cuda::submit(stream,
                                  [=] { simulated_cuda::run_grid(grid, block, [&] { std::apply(kernel, copies); }); });
  }(std::index_sequence_for<Parameters...>{});
}

// With one attribute, the size of the clusters.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* launched, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (simulated_cuda::launches_do_nothing()) return cudaSuccess;
  const std::tuple<std::decay_t<Parameters>...> copies(arguments...);
  if (launched->numAttrs != 1 || launched->attrs[0].id != cudaLaunchAttributeClusterDimension) {
    return cudaErrorNotSupported;
  }
  const auto [blocks, y, z] = launched->attrs[0].val.clusterDim;
  const dim3 grid = launched->gridDim, block = launched->blockDim;
  cudaError_t error = simulated_cuda::check_clusters(launched->stream, grid, y == 1 && z == 1 ? blocks : 0);
  if (error == cudaSuccess) {
    error = std::apply([](const auto&... each) { return simulated_cuda::check_all(each...); }, copies);
  }
  if (error != cudaSuccess) return error;
  return simulated_cuda::submit(launched->stream, [=, blocks = blocks] {
    simulated_cuda::run_grid_of_clusters(grid, blocks, block, [&] { std::apply(kernel, copies); });
  });
}
