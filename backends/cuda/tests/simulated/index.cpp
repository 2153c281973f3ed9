// The index arithmetic by itself, for ctypes.
#include "index.h"

namespace {
constexpr int kOperands = 3;
}

extern "C" uint32_t quotient(uint32_t dividend, uint32_t divisor) {
  return muladd::cuda::Divider(divisor).quotient(dividend);
}

extern "C" void locate(int ndim, const uint32_t* sizes, const uint32_t* strides, uint32_t number, uint32_t* offsets) {
  muladd::cuda::Walk<kOperands> walk;
  walk.ndim = ndim;
  for (int d = 0; d < ndim; ++d) {
    walk.sizes[d] = muladd::cuda::Divider(sizes[d]);
    for (int i = 0; i < kOperands; ++i) walk.strides[d][i] = strides[d * kOperands + i];
  }
  uint32_t found[kOperands];
  walk.locate(number, found);
  for (int i = 0; i < kOperands; ++i) offsets[i] = found[i];
}
