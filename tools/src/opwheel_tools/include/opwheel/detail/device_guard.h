// Makes a device the current one. A kernel runs on the current device, which need not be the tensors'.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>

#include "opwheel/detail/error.h"

namespace opwheel {

class DeviceGuard {
 public:
  explicit DeviceGuard(int32_t device_index) { OPWHEEL_SHIM(aoti_torch_create_device_guard(device_index, &guard_)); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() { aoti_torch_delete_device_guard(guard_); }

 private:
  DeviceGuardHandle guard_ = nullptr;
};

}  // namespace opwheel
