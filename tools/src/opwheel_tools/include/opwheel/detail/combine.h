// What a reduction combines two values with: the same on the host and on every device.
#pragma once

#include <type_traits>

#include "opwheel/functor.h"

namespace opwheel {

struct Add {
  template <class T>
  OPWHEEL_HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};

// nan is larger than every number, as in PyTorch.
struct Larger {
  template <class T>
  OPWHEEL_HOST_DEVICE T operator()(T a, T b) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, float>) {  // an instruction in the place of three, each of which waits for the last
      float larger;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
      return larger;
    }
#endif
    return a > b || a != a ? a : b;
  }
};

}  // namespace opwheel
