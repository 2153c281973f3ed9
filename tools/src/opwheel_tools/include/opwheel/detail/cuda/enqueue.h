// The interface between the code that knows PyTorch, which the C++ compiler compiles, and the code that knows CUDA,
// which nvcc compiles (enqueue.cuh).
#pragma once

#include <cstdint>

namespace opwheel::cuda {

// Enqueues a kernel of elementwise.h on a cudaStream_t of the current device.
template <class Kernel>
void enqueue(const Kernel& kernel, uint32_t blocks, void* stream);

}  // namespace opwheel::cuda
