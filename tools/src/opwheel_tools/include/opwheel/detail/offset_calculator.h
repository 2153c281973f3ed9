// From the number of an element to its place in each operand, with 32-bit arithmetic, as PyTorch's OffsetCalculator
// does. Nothing here depends on a device or on PyTorch: CUDA and SYCL kernels use it, and the tests run it on the CPU.
#pragma once

#include <cstdint>

#include "opwheel/functor.h"

namespace opwheel {

// What 32-bit arithmetic can address: at most 2^31 elements, every byte of every operand within 2^32 of its first one.
// Tests define smaller ones.
#ifndef OPWHEEL_MAX_INDEXED_ELEMENTS
#define OPWHEEL_MAX_INDEXED_ELEMENTS (int64_t{1} << 31)
#endif
#ifndef OPWHEEL_MAX_INDEXED_BYTES
#define OPWHEEL_MAX_INDEXED_BYTES (int64_t{1} << 32)
#endif
constexpr int64_t kMaxIndexedElements = OPWHEEL_MAX_INDEXED_ELEMENTS;
constexpr int64_t kMaxIndexedBytes = OPWHEEL_MAX_INDEXED_BYTES;
constexpr int kMaxIndexedDims = 31;  // 2^31 elements cannot have more dimensions whose size is not 1

// Division by a number that is known before the launch, as a multiplication and a shift (Granlund and Montgomery,
// "Division by invariant integers using multiplication", 1994). The dividend must be less than 2^31, the divisor
// between 1 and 2^31.
class IntDivider {
 public:
  IntDivider() = default;
  explicit IntDivider(uint32_t divisor) : divisor_(divisor) {
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

// The dimensions, innermost first, and each operand's strides in bytes.
template <int kOperands>
struct OffsetCalculator {
  int ndim = 1;
  IntDivider sizes[kMaxIndexedDims];
  uint32_t strides[kMaxIndexedDims][kOperands] = {};

  // Bytes from each operand's first element to the one with this number, counted along the dimensions.
  OPWHEEL_HOST_DEVICE void get(uint32_t number, uint32_t (&offsets)[kOperands]) const {
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

}  // namespace opwheel
