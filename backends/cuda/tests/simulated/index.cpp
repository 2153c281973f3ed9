// The index arithmetic by itself, for ctypes.
#include "opwheel/elementwise_kernels.h"

namespace {
constexpr int kOperands = 3;
}

extern "C" uint32_t quotient(uint32_t dividend, uint32_t divisor) {
  return opwheel::IntDivider(divisor).quotient(dividend);
}

extern "C" void locate(int ndim, const uint32_t* sizes, const uint32_t* strides, uint32_t number, uint32_t* offsets) {
  opwheel::OffsetCalculator<kOperands> place;
  place.ndim = ndim;
  for (int d = 0; d < ndim; ++d) {
    place.sizes[d] = opwheel::IntDivider(sizes[d]);
    for (int i = 0; i < kOperands; ++i) place.strides[d][i] = strides[d * kOperands + i];
  }
  uint32_t found[kOperands];
  place.get(number, found);
  for (int i = 0; i < kOperands; ++i) offsets[i] = found[i];
}
