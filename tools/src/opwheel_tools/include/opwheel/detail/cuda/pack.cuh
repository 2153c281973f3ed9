// Neighbouring elements of a row as they are in memory, and conversions to and from the type that is computed in.
// Elements of 16 bits are kept two in a register: one by one each would take a register of its own.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "opwheel/detail/cuda/lanes.h"
#include "opwheel/detail/cuda/vector.h"

namespace opwheel::cuda {

constexpr int kVectorBytes = 16;

template <class U, int kCount>
constexpr bool kIsPaired = sizeof(U) == 2 && kCount % 2 == 0;

// Loaded and stored in as few instructions as possible.
template <class U, int kCount, bool is_paired = kIsPaired<U, kCount>>
struct alignas(sizeof(U) * kCount < kVectorBytes ? sizeof(U) * kCount : kVectorBytes) Pack {
  U lanes[kCount];
};
template <class U, int kCount>
struct alignas(sizeof(U) * kCount < kVectorBytes ? sizeof(U) * kCount : kVectorBytes) Pack<U, kCount, true> {
  uint32_t words[kCount / 2];
};

// Loads neighbouring elements, 16 bytes in an instruction: of a reference to them the compiler would load each by
// itself.
template <class U, int kCount>
__device__ Pack<U, kCount> loaded(const U* data) {
  return *reinterpret_cast<const Pack<U, kCount>*>(data);
}
// Stores them, 16 bytes in an instruction: to an address that is not simple the compiler would store each by itself.
template <class U, int kCount>
__device__ void put(U* data, const Pack<U, kCount>& pack) {
#if defined(__CUDA_ARCH__)
  constexpr int count = sizeof(Pack<U, kCount>) / kVectorBytes;
  if constexpr (sizeof(Pack<U, kCount>) == count * kVectorBytes) {
    uint4 vectors[count];
    std::memcpy(vectors, &pack, sizeof pack);
    OPWHEEL_UNROLL
    for (int i = 0; i < count; ++i) {
      const uint4 one = vectors[i];
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint4*>(data) + i), "r"(one.x),
                   "r"(one.y), "r"(one.z), "r"(one.w)
                   : "memory");
    }
    return;
  }
#endif
  *reinterpret_cast<Pack<U, kCount>*>(data) = pack;
}

namespace detail {

struct Pair {
  float low, high;
};

template <class U>
__device__ Pair unpaired(uint32_t word) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<U, BFloat16>) return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  if constexpr (std::is_same_v<U, Half>) {
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&word));
    return {both.x, both.y};
  }
#endif
  U both[2];
  std::memcpy(both, &word, sizeof both);
  return {static_cast<float>(both[0]), static_cast<float>(both[1])};
}
template <class U>
__device__ uint32_t paired(float low, float high) {
  uint32_t word;
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<U, BFloat16>) {
    *reinterpret_cast<__nv_bfloat162*>(&word) = __floats2bfloat162_rn(low, high);
    return word;
  }
  if constexpr (std::is_same_v<U, Half>) {
    *reinterpret_cast<__half2*>(&word) = __floats2half2_rn(low, high);
    return word;
  }
#endif
  const U both[2] = {static_cast<U>(low), static_cast<U>(high)};
  std::memcpy(&word, both, sizeof word);
  return word;
}

}  // namespace detail

template <class C, class U, int kCount>
__device__ Lanes<C, kCount> widened(const Pack<U, kCount>& pack) {
  Lanes<C, kCount> lanes;
  if constexpr (kIsPaired<U, kCount>) {
    OPWHEEL_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      const detail::Pair pair = detail::unpaired<U>(pack.words[i]);
      lanes.values[2 * i] = static_cast<C>(pair.low);
      lanes.values[2 * i + 1] = static_cast<C>(pair.high);
    }
  } else {
    OPWHEEL_UNROLL
    for (int i = 0; i < kCount; ++i) lanes.values[i] = static_cast<C>(pack.lanes[i]);
  }
  return lanes;
}
template <class U, class C, int kCount>
__device__ Pack<U, kCount> narrowed(const Lanes<C, kCount>& lanes) {
  Pack<U, kCount> pack;
  if constexpr (kIsPaired<U, kCount>) {
    OPWHEEL_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      pack.words[i] =
          detail::paired<U>(static_cast<float>(lanes.values[2 * i]), static_cast<float>(lanes.values[2 * i + 1]));
    }
  } else {
    OPWHEEL_UNROLL
    for (int i = 0; i < kCount; ++i) pack.lanes[i] = static_cast<U>(lanes.values[i]);
  }
  return pack;
}

}  // namespace opwheel::cuda
