// What the devices are.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace simulated_cuda {

constexpr int kDevices = 2;
struct Model {
  int capability[2];
  int threads;  // of a multiprocessor
};
constexpr Model kModels[kDevices] = {{{9, 0}, 2048}, {{8, 6}, 1536}};  // the second one has no clusters
constexpr int kMultiprocessors = 2;
constexpr std::size_t kMemory = std::size_t{4} << 30;  // bytes on each device

}  // namespace simulated_cuda
