// A device whose kernels run on the CPU: every thread of every block, one after the other and in no particular order.
#pragma once

#include <cstdint>
#include <numeric>

#include "opwheel/cuda/backend.h"

namespace muladd::cuda {

using opwheel::cuda::kThreads;

class Grid {
 public:
  static int32_t type() { return aoti_torch_device_type_cpu(); }

  explicit Grid(int32_t) {}

  template <class Kernel>
  void enqueue(Kernel kernel, uint32_t blocks) {
#ifdef ONE_ELEMENT_TOO_FAR  // shows that the sanitizers are at work
    kernel.count += 1;
#endif
    const uint64_t threads = uint64_t{blocks} * kThreads;
    // A step that shares no divisor with their number visits all threads; neighbours are far apart in time.
    uint64_t step = threads * 5 / 8 + 1;
    while (std::gcd(step, threads) != 1) ++step;
    uint64_t thread = 0;
    do {
      kernel(static_cast<uint32_t>(thread / kThreads), static_cast<uint32_t>(thread % kThreads));
      thread = (thread + step) % threads;
    } while (thread != 0);
  }
};

}  // namespace muladd::cuda
