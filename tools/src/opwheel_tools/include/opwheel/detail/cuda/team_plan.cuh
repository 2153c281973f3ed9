// How rows are shared out to teams of threads.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "opwheel/cuda/enqueue.cuh"
#include "opwheel/detail/cuda/cluster.cuh"
#include "opwheel/detail/cuda/pack.cuh"
#include "opwheel/detail/tensor.h"

namespace opwheel::cuda {

constexpr int kTeamWarp = 32;
constexpr int kMostOfTeam = 512;  // threads of a team; two blocks of them leave each thread 64 registers
constexpr int64_t kMostBlocks = int64_t{1} << 30;
constexpr int64_t kAnyNumber = -1, kAsManyAsFit = -2;
constexpr int kShortBlock = 128;  // threads of a block whose teams are parts of a warp
// Bytes of the largest elements that are taken in vectors, and held. Rows of double are read one by one: most devices
// compute with it more slowly than they read it, and its kernels would be a quarter of a library.
constexpr int kLargestElement = 4;

// Whether vectors of 16 bytes of T can be taken from rows of this length that begin at these addresses (null: none),
// `strides` elements apart.
template <class T>
bool are_aligned(int64_t length, std::initializer_list<const void*> data, std::initializer_list<int64_t> strides = {}) {
  constexpr int64_t width = kVectorBytes / sizeof(T);
  return length % width == 0 &&
         std::all_of(data.begin(), data.end(),
                     [](const void* one) { return reinterpret_cast<uintptr_t>(one) % kVectorBytes == 0; }) &&
         std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride % width == 0; });
}

// How many a device has, which decides how many teams there are.
inline int64_t multiprocessors(Device device) {
  int count = 0;
  check_launch(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index));
  return std::max(count, 1);
}

// How teams are made for rows of some length: how many, of how many threads, holding how many vectors each. All but
// how many there are follows from the device, the kernel and the row alone: what is computed of a row does not depend
// on the number of rows. plan_teams() makes one.
struct TeamPlan {
  Device device;
  int64_t rows, length;
  bool has_vectors;
  int held = 0;            // vectors of a thread; 0: as many as the row takes
  uint32_t cluster = 1;    // blocks of a team
  uint32_t threads = 0;    // of a team in a block
  uint32_t in_block = 1;   // teams
  int64_t blocks = 0;      // or clusters of them
  int64_t teams = 0;       // that rows are shared out to
  bool is_fitted = false;  // to what the device runs at a time, when the kernel is launched

  // `element_bytes`: of T, the type that the kernel's vectors are made of; `most_held`: the functor's kHeld;
  // `resident`: threads that a multiprocessor is to have, whose teams have several rows each; kAsManyAsFit: as many as
  // it runs at a time, with the registers that the kernel takes on this device; kAnyNumber: a team for each row.
  // `may_cluster`: the functor's kUsesClusters.
  TeamPlan(Device device, int64_t rows, int64_t length, int64_t element_bytes, bool is_aligned, int most_held,
           int64_t resident = kAnyNumber, bool may_cluster = false)
      : device(device), rows(rows), length(length), has_vectors(is_aligned && element_bytes <= kLargestElement) {
    const int64_t width = has_vectors ? kVectorBytes / element_bytes : 1;
    const int64_t vectors = (length + width - 1) / width;
    if (may_cluster && element_bytes <= kLargestElement) cluster = blocks_of_cluster(length * element_bytes, most_held);
    const int64_t held_by_all = int64_t{most_held} * kMostOfTeam * cluster;
    held = !has_vectors || vectors > held_by_all ? 0 : vectors <= kTeamWarp ? 1 : most_held;
    const int64_t of_thread = (held == 0 ? 4 : held) * int64_t{cluster}, wanted = (vectors + of_thread - 1) / of_thread;
    threads = 1;
    while (threads < kTeamWarp && threads < wanted) threads *= 2;
    if (wanted > kTeamWarp) {
      threads = static_cast<uint32_t>(std::min<int64_t>((wanted + kTeamWarp - 1) / kTeamWarp * kTeamWarp, kMostOfTeam));
    }
    if (threads <= kTeamWarp) in_block = kShortBlock / threads;
    const int64_t of_block = int64_t{threads} * in_block, needed = (rows + in_block - 1) / in_block;
    blocks = std::min(needed, kMostBlocks / cluster);
    is_fitted = resident == kAsManyAsFit;
    int64_t room = blocks;
    if (resident >= 0) room = multiprocessors(device) * std::max<int64_t>(resident / of_block, 1) / cluster;
    limit(room);
  }

  // No more blocks, or clusters of them, which have all rows nevertheless.
  void limit(int64_t room) {
    blocks = std::min(blocks, std::max<int64_t>(room, 1));
    teams = std::min(blocks * in_block, rows);
  }

  // Shares the rows out to so many teams instead.
  void set_teams(int64_t count) {
    is_fitted = false;
    teams = count;
    blocks = (count + in_block - 1) / in_block;
  }

 private:
  // As many as hold a row of so many bytes, or as many as a cluster has at most; 1 where one does. What does not fit
  // into the registers of a block is a lot for one, aligned or not.
  uint32_t blocks_of_cluster(int64_t bytes, int most_held) const {
    const int64_t held_by_block = int64_t{most_held} * kMostOfTeam * kVectorBytes;
    if (bytes <= held_by_block) return 1;
    const uint32_t most = largest_cluster(device);
    uint32_t count = 1;
    while (count < most && bytes > count * held_by_block) count *= 2;
    return count;
  }
};

// A plan that says for which functors it is: over elements of type T, with this kHeld and kUsesClusters. In a plan for
// others threads would not have the whole row.
template <class T, int kHeld, bool kClusters>
struct TeamPlanOf : TeamPlan {
  TeamPlanOf(Device device, int64_t rows, int64_t length, bool is_aligned, int64_t resident = kAnyNumber)
      : TeamPlan(device, rows, length, sizeof(T), is_aligned, kHeld, resident, kClusters) {}
};

}  // namespace opwheel::cuda
