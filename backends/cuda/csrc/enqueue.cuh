// Makes a CUDA kernel of each kernel in kernels.h. A .cu file instantiates them for one dtype.
#pragma once

#include <cuda_runtime.h>

#include "enqueue.h"
#include "kernels.h"
#include "opwheel/error.h"

namespace muladd::cuda {

template <class Kernel>
__global__ void __launch_bounds__(kThreads) run(const Kernel kernel) {
  kernel(blockIdx.x, threadIdx.x);
}

template <class Kernel>
void enqueue(const Kernel& kernel, uint32_t blocks, void* stream) {
  void* arguments[] = {const_cast<Kernel*>(&kernel)};
  const cudaError_t error =
      cudaLaunchKernel(&run<Kernel>, dim3(blocks), dim3(kThreads), arguments, 0, static_cast<cudaStream_t>(stream));
  if (error == cudaSuccess) return;
  cudaGetLastError();  // the next call starts clean
  fail("its CUDA kernel could not be launched: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), "). ",
       error == cudaErrorNoKernelImageForDevice
           ? "The library has no code for this device: build it with TORCH_CUDA_ARCH_LIST set to its compute capability"
           : "An error of an earlier kernel shows up at a later call: CUDA_LAUNCH_BLOCKING=1 finds the one it belongs "
             "to");
}

}  // namespace muladd::cuda

#define MULADD_CUDA_FUNCTOR(T, Functor)                                                          \
  template void enqueue(const Contiguous<T, Functor<ComputeType<T>>>&, uint32_t, void*);         \
  template void enqueue(const Strided<RowVector<T>, Functor<ComputeType<T>>>&, uint32_t, void*); \
  template void enqueue(const Strided<Element<T>, Functor<ComputeType<T>>>&, uint32_t, void*)

#define MULADD_CUDA_KERNELS(T)            \
  namespace muladd::cuda {                \
  MULADD_CUDA_FUNCTOR(T, MulAdd);         \
  MULADD_CUDA_FUNCTOR(T, Fma);            \
  MULADD_CUDA_FUNCTOR(T, Mul);            \
  MULADD_CUDA_FUNCTOR(T, Add);            \
  MULADD_CUDA_FUNCTOR(T, Scale);          \
  MULADD_CUDA_FUNCTOR(T, MulAddBackward); \
  }
