// What the devices are.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace simulated_cuda {

constexpr int kDevices = 2;
constexpr int kCapability[] = {9, 0};
constexpr int kMultiprocessors = 2;
constexpr std::size_t kMemory = std::size_t{4} << 30;  // bytes on each device

}  // namespace simulated_cuda
