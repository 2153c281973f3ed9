// PyTorch's current stream on a device. Kernels are only ever enqueued on it: nothing waits, nothing is allocated, so
// calls can be captured into a CUDA graph.
#pragma once

#include <cstdint>

#include "opwheel/detail/cuda/enqueue.h"
#include "opwheel/detail/device_guard.h"
#include "opwheel/detail/error.h"
#include "opwheel/detail/tensor.h"

// PyTorch's header declares it only where USE_CUDA is defined.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);

namespace opwheel::cuda {

class CurrentStream {
 public:
  static int32_t type() { return aoti_torch_device_type_cuda(); }

  explicit CurrentStream(int32_t device) : guard_(device) {
    OPWHEEL_SHIM(aoti_torch_get_current_cuda_stream(device, &stream_));
  }

  void* get() const { return stream_; }  // a cudaStream_t

  template <class Kernel>
  void enqueue(const Kernel& kernel, uint32_t blocks) {
    cuda::enqueue(kernel, blocks, stream_);
  }

 private:
  DeviceGuard guard_;
  void* stream_ = nullptr;
};

}  // namespace opwheel::cuda
