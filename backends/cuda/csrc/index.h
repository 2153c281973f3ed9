// Where the operands of a kernel have an element, computed with 32-bit arithmetic. Nothing here depends on a device or
// on PyTorch: the tests run it on the CPU.
#pragma once

#include <cstdint>

#include "muladd/arithmetic.h"

namespace muladd::cuda {

// One launch walks a slab: at most 2^31 elements, every byte of every operand within 2^32 of the operand's first one.
constexpr int64_t kMaxElements = int64_t{1} << 31;
constexpr int64_t kMaxReach = int64_t{1} << 32;
constexpr int kMaxSlabDims = 31;  // 2^31 elements cannot have more dimensions whose size is not 1

// Division by a number that is known before the launch, as a multiplication and a shift (Granlund and Montgomery,
// "Division by invariant integers using multiplication", 1994). The dividend must be less than 2^31, the divisor
// between 1 and 2^31.
class Divider {
 public:
  Divider() = default;
  explicit Divider(uint32_t divisor) : divisor_(divisor) {
    while ((uint64_t{1} << shift_) < divisor) ++shift_;
    magic_ = static_cast<uint32_t>((((uint64_t{1} << shift_) - divisor) << 32) / divisor + 1);
  }

  OPWHEEL_HOST_DEVICE uint32_t quotient(uint32_t dividend) const {
    return (high_product(dividend, magic_) + dividend) >> shift_;
  }
  OPWHEEL_HOST_DEVICE uint32_t divisor() const { return divisor_; }

 private:
  uint32_t divisor_ = 1;
  uint32_t magic_ = 1;
  uint32_t shift_ = 0;

  static OPWHEEL_HOST_DEVICE uint32_t high_product(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
    return __umulhi(a, b);
#else
    return static_cast<uint32_t>((uint64_t{a} * b) >> 32);
#endif
  }
};

// The dimensions of a slab, innermost first, and each operand's strides in bytes.
template <int kOperands>
struct Walk {
  int ndim = 1;
  Divider sizes[kMaxSlabDims];
  uint32_t strides[kMaxSlabDims][kOperands] = {};

  // Bytes from each operand's first element to the one with this number, counted along the dimensions.
  OPWHEEL_HOST_DEVICE void locate(uint32_t number, uint32_t (&offsets)[kOperands]) const {
    for (int i = 0; i < kOperands; ++i) offsets[i] = 0;
    // The outermost dimension needs no division.
    for (int d = 0; d < ndim - 1; ++d) {
      const uint32_t outer = sizes[d].quotient(number);
      const uint32_t coordinate = number - outer * sizes[d].divisor();
      for (int i = 0; i < kOperands; ++i) offsets[i] += coordinate * strides[d][i];
      number = outer;
    }
    for (int i = 0; i < kOperands; ++i) offsets[i] += number * strides[ndim - 1][i];
  }
};

}  // namespace muladd::cuda
