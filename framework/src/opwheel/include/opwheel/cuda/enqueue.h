// The seam between the code that knows PyTorch (compiled by the C++ compiler) and the code that knows CUDA (by nvcc).
#pragma once

#include <cstdint>

namespace opwheel::cuda {

// Enqueues a kernel of elementwise.h on a cudaStream_t of the current device.
template <class Kernel>
void enqueue(const Kernel& kernel, uint32_t blocks, void* stream);

}  // namespace opwheel::cuda
