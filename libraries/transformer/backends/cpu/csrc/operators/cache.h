// reshape_and_cache: arguments are checked, results allocated, kernels run.
#pragma once

#include <vector>

#include "../arguments.h"

namespace transformer_ops::cpu {

// The slots, but -1 for tokens after which another one has the same.
inline std::vector<int64_t> slots_of_last(const int64_t* given, int64_t tokens, int64_t slot_count) {
  std::vector<int64_t> slots(given, given + tokens);
  std::vector<bool> is_taken(static_cast<std::size_t>(slot_count));
  for (int64_t i = tokens - 1; i >= 0; --i) {
    if (slots[i] < 0) continue;
    if (is_taken[slots[i]]) {
      slots[i] = -1;
    } else {
      is_taken[slots[i]] = true;
    }
  }
  return slots;
}

// Writes token i of key and value into slot_mapping[i] = block * block_size + offset of the caches; negative slots are
// left out, and of tokens with one slot all but the last.
inline void reshape_and_cache(const Tensor& key, const Tensor& value, Tensor& key_cache, Tensor& value_cache,
                              const Tensor& given_slots) {
  check_cache(key, value, key_cache, value_cache, given_slots);
  const opwheel::TensorInfo keys(key), values(value), cache(key_cache);
  const int64_t tokens = keys.sizes[0], heads = keys.sizes[1], length = keys.sizes[2];
  const int64_t blocks = cache.sizes[0], block_size = cache.sizes[1];
  const Tensor slots = contiguous(given_slots);
  const int64_t* all = data<int64_t>(slots);
  for (int64_t i = 0; i < tokens; ++i) {
    if (all[i] >= blocks * block_size) {
      fail("argument 'slot_mapping' has ", all[i], ", but the caches have ", blocks * block_size, " slots");
    }
  }
  const std::vector<int64_t> kept = slots_of_last(all, tokens, blocks * block_size);
  const int64_t* slot = kept.data();
  const auto write = [&](const Tensor& given, Tensor& target, int64_t width) {
    const Tensor from = contiguous(given);
    const opwheel::TensorInfo to(target);
    opwheel::dispatch<opwheel::every_dtype>(dtype_of(given), [&]<class T> {
      const T* source = data<T>(from);
      T* start = data<T>(target);
      opwheel::cpu::for_rows(tokens, heads * width, [&](int64_t i) {
        if (slot[i] < 0) return;
        T* place = start + slot[i] / block_size * to.strides[0] + slot[i] % block_size * to.strides[1];
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t k = 0; k < width; ++k) {
            place[h * to.strides[2] + k * to.strides[3]] = source[(i * heads + h) * width + k];
          }
        }
      });
    });
  };
  write(key, key_cache, length);
  write(value, value_cache, values.sizes[2]);
}

}  // namespace transformer_ops::cpu
