// What a reduction combines two values with: the same on the host and on every device.
#pragma once

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
    return a > b || a != a ? a : b;
  }
};

}  // namespace opwheel
