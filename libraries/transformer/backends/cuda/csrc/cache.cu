// reshape_and_cache: tokens are copied into their slots.
#include <cassert>

#include "kernels.h"
#include "opwheel/cuda/rows.cuh"

namespace transformer_ops::cuda {

struct alignas(16) Sixteen {
  uint64_t parts[2];
};

// A "row" is a token of `heads` times `length` elements of type E, whose bits are copied.
template <class E>
struct CacheRows {
  CacheWrite a;

  __device__ void operator()(int64_t i) const {
    const int64_t slot = a.slots[i];
    if (slot < 0) return;
    assert(slot < a.blocks * a.block_size && "argument 'slot_mapping' has a slot that the caches have not");
    E* const place = static_cast<E*>(a.cache) + slot / a.block_size * a.strides[0] + slot % a.block_size * a.strides[1];
    const E* const source = static_cast<const E*>(a.source) + i * a.heads * a.length;
    opwheel::cuda::for_each(a.heads * a.length, [&](int64_t k) {
      place[k / a.length * a.strides[2] + k % a.length * a.strides[3]] = source[k];
    });
  }
};

// The same copy, of elements that are as wide as all addresses and strides allow: heads that follow each other are one.
inline CacheWrite widest(CacheWrite a) {
  if (a.strides[3] != 1 && a.length > 1) return a;
  a.strides[3] = 1;  // that of one element may be anything
  if (a.heads == 1 || a.strides[2] == a.length) {
    a.length *= a.heads;
    a.heads = 1;
    a.strides[2] = a.length;
  }
  const int64_t factor = 16 / a.element_bytes;
  const auto fits = [&](int64_t elements) { return elements % factor == 0; };
  const bool is_aligned = reinterpret_cast<uintptr_t>(a.source) % 16 == 0 &&
                          reinterpret_cast<uintptr_t>(a.cache) % 16 == 0 && fits(a.length) && fits(a.strides[0]) &&
                          fits(a.strides[1]) && fits(a.strides[2]);
  if (!is_aligned) return a;
  a.length /= factor;
  for (int d = 0; d < 3; ++d) a.strides[d] /= factor;
  a.element_bytes = 16;
  return a;
}

void run(Device device, const CacheWrite& given, int64_t tokens) {
  const CacheWrite a = widest(given);
  const int64_t length = a.heads * a.length;
  if (length == 0) return;
  switch (a.element_bytes) {
    case 1:
      return opwheel::cuda::for_rows(device, tokens, length, CacheRows<uint8_t>{a});
    case 2:
      return opwheel::cuda::for_rows(device, tokens, length, CacheRows<uint16_t>{a});
    case 4:
      return opwheel::cuda::for_rows(device, tokens, length, CacheRows<uint32_t>{a});
    case 8:
      return opwheel::cuda::for_rows(device, tokens, length, CacheRows<uint64_t>{a});
    default:
      return opwheel::cuda::for_rows(device, tokens, length, CacheRows<Sixteen>{a});
  }
}

}  // namespace transformer_ops::cuda
