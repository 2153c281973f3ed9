// Clusters of blocks, as CUDA has them.
#pragma once

#include <cuda_runtime.h>

namespace cooperative_groups {

class cluster_group {
 public:
  static unsigned block_rank() { return simulated_cuda::rank_in_cluster(); }
  static unsigned num_blocks() { return simulated_cuda::blocks_of_cluster(); }
  static void sync() {
    const dim3 me = threadIdx;
    simulated_cuda::wait_for_cluster();
    threadIdx = me;
  }
  // Where a block has what is at this address in its own shared memory.
  template <class T>
  static T* map_shared_rank(T* mine, int rank) {
    return static_cast<T*>(simulated_cuda::address_in_cluster(mine, static_cast<unsigned>(rank)));
  }
};

inline cluster_group this_cluster() { return {}; }

}  // namespace cooperative_groups
