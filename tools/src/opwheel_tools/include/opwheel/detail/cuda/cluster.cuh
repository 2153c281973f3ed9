// Blocks of threads that run at the same time and reach each other's shared memory: thread-block clusters, which
// devices of compute capability 9.0 and later have.
#pragma once

#if defined(__HIPCC__)
#error "opwheel/detail/cuda/cluster.cuh is for CUDA: ROCm has no clusters of blocks"
#endif

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "opwheel/cuda/enqueue.cuh"
#include "opwheel/detail/device_guard.h"
#include "opwheel/detail/tensor.h"

namespace opwheel::cuda {

constexpr uint32_t kMostOfCluster = 8;  // blocks; more have no room on some devices that have clusters

namespace detail {

// A team that is one block, or a part of one.
class OneBlock {
 public:
  static constexpr bool kIsCluster = false;
  __device__ static constexpr uint32_t rank() { return 0; }
  __device__ static constexpr uint32_t count() { return 1; }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// This thread's block among those of a cluster.
class BlockOfCluster {
 public:
  static constexpr bool kIsCluster = true;

  // Every block runs from here on: others may write into its shared memory.
  __device__ BlockOfCluster()
      : rank_(cooperative_groups::cluster_group::block_rank()),
        count_(cooperative_groups::cluster_group::num_blocks()) {
    cooperative_groups::this_cluster().sync();
  }
  __device__ uint32_t rank() const { return rank_; }
  __device__ uint32_t count() const { return count_; }

  // Combines what the blocks have found, in the order of their ranks; every thread of a block has its block's. Each
  // block writes into the memory of all and reads its own, so that a block which comes to its end is not waited for.
  // The next call writes into the other half: when the one after it comes back to this one, all have passed a barrier
  // behind what they read here.
  template <class Acc, class Combine>
  __device__ Acc combined(const Acc& of_this, const Combine& combine) const {
    __shared__ Acc of_blocks[2][kMostOfCluster];
    Acc* const half = of_blocks[turn_];
    turn_ ^= 1;
    const auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x < count_) *cluster.map_shared_rank(half + rank_, static_cast<int>(threadIdx.x)) = of_this;
    cluster.sync();
    Acc total = half[0];
#pragma unroll 1  // a few of them: less code
    for (uint32_t i = 1; i < count_; ++i) total = combine(total, half[i]);
    return total;
  }

 private:
  uint32_t rank_, count_;
  mutable uint32_t turn_ = 0;
};

#else
class BlockOfCluster {  // a part of the names of kernels that do not run here: largest_cluster()
 public:
  static constexpr bool kIsCluster = true;
};
#endif

// What the driver says of it holds for the library's kernels: which devices they were compiled for, and how large their
// clusters may be.
template <class = void>
__global__ void asked_about() {}

inline uint32_t find_largest_cluster(int32_t device) {
  int can_launch = 0;
  check_launch(cudaDeviceGetAttribute(&can_launch, cudaDevAttrClusterLaunch, device));
  if (can_launch == 0) return 1;
  const DeviceGuard guard(device);
  const auto* const kernel = reinterpret_cast<const void*>(&asked_about<>);
  cudaFuncAttributes attributes;
  check_launch(cudaFuncGetAttributes(&attributes, kernel));
  if (attributes.ptxVersion < 90) return 1;
  // Of blocks that take all shared memory: each then has a multiprocessor, as those of a kernel with many registers.
  int shared = 0, found = 0;
  check_launch(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kMostOfCluster);
  config.blockDim = dim3(1);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  if (cudaOccupancyMaxPotentialClusterSize(&found, kernel, &config) != cudaSuccess) {
    cudaGetLastError();  // the next call starts clean; without clusters results are the same
    return 1;
  }
  uint32_t largest = 1;
  while (largest < kMostOfCluster && 2 * largest <= static_cast<uint32_t>(found)) largest *= 2;
  return largest;
}

// A launch of clusters of `blocks` blocks.
class ClusterLaunch {
 public:
  ClusterLaunch(uint32_t blocks, uint32_t threads, void* stream) : blocks_(blocks) {
    shape_.id = cudaLaunchAttributeClusterDimension;
    shape_.val.clusterDim = {blocks, 1, 1};
    config_.blockDim = dim3(threads);
    config_.stream = static_cast<cudaStream_t>(stream);
    config_.attrs = &shape_;
    config_.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;

  // Of `count` clusters.
  template <class... Parameters>
  void run(void (*kernel)(Parameters...), int64_t count, const Parameters&... parameters) {
    set_count(count);
    check_launch(cudaLaunchKernelEx(&config_, kernel, parameters...));
  }
  // How many clusters the device runs at a time.
  int64_t at_a_time(const void* kernel) {
    int count = 0;
    set_count(1);
    check_launch(cudaOccupancyMaxActiveClusters(&count, kernel, &config_));
    return count;
  }

 private:
  uint32_t blocks_;
  cudaLaunchAttribute shape_{};
  cudaLaunchConfig_t config_{};

  void set_count(int64_t count) { config_.gridDim = dim3(static_cast<uint32_t>(count * blocks_)); }
};

}  // namespace detail

// How many blocks a cluster may have on the device: 2, 4 or 8, a power of two; fewer than 8 where the multiprocessors
// that can form one are fewer, as in a small part of a device (MIG). 1 where it has no clusters, or the library no code
// that uses them: a device that is newer than all that the library was compiled for runs what the driver makes of PTX,
// which may be that of an older device. Asked once for each device.
inline uint32_t largest_cluster(Device device) {
  constexpr int kRemembered = 64;
  static std::atomic<uint32_t> answers[kRemembered];  // 0: not asked yet
  if (device.index < 0 || device.index >= kRemembered) return detail::find_largest_cluster(device.index);
  std::atomic<uint32_t>& answer = answers[device.index];
  if (answer == 0) answer = detail::find_largest_cluster(device.index);
  return answer;
}

}  // namespace opwheel::cuda
