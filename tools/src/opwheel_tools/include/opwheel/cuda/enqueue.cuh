// The CUDA kernels of a library's element-wise operators. A .cu file instantiates them for one dtype.
#pragma once

#include <cuda_runtime.h>

#include "opwheel/detail/cuda/elementwise.h"
#include "opwheel/detail/cuda/enqueue.h"
#include "opwheel/detail/error.h"

namespace opwheel::cuda {

template <class Kernel>
__global__ void __launch_bounds__(kThreads) run(const Kernel kernel) {
  kernel(blockIdx.x, threadIdx.x);
}

// Throws if the launch that gave this has failed.
inline void check_launch(cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // the next call starts clean
  fail(code::launch, " its CUDA kernel could not be launched: ", cudaGetErrorString(error), " (",
       cudaGetErrorName(error), "). ",
       error == cudaErrorNoKernelImageForDevice
           ? "The library has no code for this device: build it with TORCH_CUDA_ARCH_LIST set to its compute capability"
           : "An error of an earlier kernel shows up at a later call: CUDA_LAUNCH_BLOCKING=1 finds the one it belongs "
             "to");
}

// Launches a kernel with the addresses of its arguments; throws if it cannot be launched.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, void** arguments, void* stream) {
#if defined(__HIPCC__) || (defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ < 13)
  const auto* const function = reinterpret_cast<const void*>(kernel);  // they take no pointer to a function
#else
  const auto function = kernel;
#endif
  check_launch(cudaLaunchKernel(function, blocks, threads, arguments, 0, static_cast<cudaStream_t>(stream)));
}

template <class Kernel>
void enqueue(const Kernel& kernel, uint32_t blocks, void* stream) {
  void* arguments[] = {const_cast<Kernel*>(&kernel)};
  launch(&run<Kernel>, dim3(blocks), dim3(kThreads), arguments, stream);
}

template <class Kernel>
void* address_of() {
  void (*const function)(const Kernel&, uint32_t, void*) = &enqueue<Kernel>;
  return reinterpret_cast<void*>(function);
}

}  // namespace opwheel::cuda

// The kernels of every operator of the list, for one dtype: float, double, Half or BFloat16. A source file has them, so
// that nvcc compiles several at a time; taking their addresses is what instantiates them.
#define OPWHEEL_CUDA_KERNELS(library, LIST, dtype)                    \
  namespace library::cuda::dtype##_kernels {                          \
    namespace {                                                       \
    using ::opwheel::cuda::BFloat16;                                  \
    using ::opwheel::cuda::Half;                                      \
    using T = dtype;                                                  \
    using C = ::opwheel::ComputeType<T>;                              \
    LIST(OPWHEEL_DETAIL_CUDA_KERNELS, OPWHEEL_DETAIL_NO_CUDA_KERNELS) \
    }                                                                 \
  }
#define OPWHEEL_DETAIL_CUDA_KERNELS(identifier, Functor, text)                                            \
  __attribute__((used)) void* const identifier##_kernels[] = {                                            \
      ::opwheel::cuda::address_of<::opwheel::cuda::Contiguous<T, Functor<C>>>(),                          \
      ::opwheel::cuda::address_of<::opwheel::cuda::Strided<::opwheel::cuda::RowVector<T>, Functor<C>>>(), \
      ::opwheel::cuda::address_of<::opwheel::cuda::Strided<::opwheel::cuda::Element<T>, Functor<C>>>(),   \
  };
#define OPWHEEL_DETAIL_NO_CUDA_KERNELS(identifier, operator_, text)
