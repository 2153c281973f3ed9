// The caller's SYCL queue, as PyTorch has it. Kernels never make a queue of their own and never wait: the order of
// operations on a stream is the order of submission to its queue.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstdint>
#include <sycl/sycl.hpp>

#include "opwheel/detail/error.h"

namespace opwheel::xpu {

// PyTorch owns the queues of its streams; they live as long as the process.
inline ::sycl::queue& current_queue(int32_t device_index) {
  StreamHandle stream = nullptr;
  OPWHEEL_SHIM(aoti_torch_get_current_stream(device_index, &stream));
  void* queue = nullptr;
  const AOTITorchError error = torch_stream_native_handle(stream, &queue);
  aoti_torch_delete_stream(stream);
  if (error != 0 || queue == nullptr) {
    fail("PyTorch gave no SYCL queue for the current stream of xpu:", int64_t{device_index},
         "; see whether torch.xpu.is_available(), and use a PyTorch that was built for Intel GPUs");
  }
  return *static_cast<::sycl::queue*>(queue);
}

}  // namespace opwheel::xpu
