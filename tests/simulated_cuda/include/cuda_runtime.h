// What device code needs of CUDA, for the C++ compiler: a kernel is a function that is called once for each thread of
// the grid, one after the other, when the work before it on the stream is done.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
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

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace simulated_cuda {

// In libcudart.so. What is put on a stream is done in this order, by a thread of the stream's own.
cudaError_t submit(cudaStream_t stream, std::function<void()> work);
// A device cannot reach the memory of the other one. An error is also what cudaGetLastError() gives next.
cudaError_t check_addresses(const void* parameters, std::size_t bytes);

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
        for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z)
          for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) thread();
}

// kernel<<<grid, block, shared, stream>>>(arguments...) is rewritten to launch(...)(arguments...).
template <class Kernel>
auto launch(const Kernel& kernel, dim3 grid, dim3 block, std::size_t = 0, cudaStream_t stream = nullptr) {
  return [=](const auto&... arguments) {
    if (check_all(arguments...) != cudaSuccess) return;
    submit(stream, [=] { run_grid(grid, block, [&] { kernel(arguments...); }); });
  };
}

}  // namespace simulated_cuda

// The arguments are copied, as they are by a launch.
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments, std::size_t,
                             cudaStream_t stream) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::tuple<std::decay_t<Parameters>...> copies(*static_cast<std::decay_t<Parameters>*>(arguments[I])...);
    const cudaError_t error = simulated_cuda::check_all(std::get<I>(copies)...);
    if (error != cudaSuccess) return error;
    return simulated_cuda::submit(stream,
                                  [=] { simulated_cuda::run_grid(grid, block, [&] { std::apply(kernel, copies); }); });
  }(std::index_sequence_for<Parameters...>{});
}
