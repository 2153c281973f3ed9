// The dtypes of the operands, results first, as a kernel is told them. Host and device compile this file.
#pragma once

#include "opwheel/detail/dtype.h"
#include "opwheel/functor.h"

namespace opwheel::xpu {

struct OperandDTypes {
  DType of[kMaxOperands];
};

}  // namespace opwheel::xpu
