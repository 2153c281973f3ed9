// reshape_and_cache: arguments are checked, kernels run.
#pragma once

#include <algorithm>

#include "../arguments.h"

namespace transformer_ops::cuda {

// Writes token i of key and value into slot_mapping[i] = block * block_size + offset of the caches; negative slots are
// left out.
inline void reshape_and_cache(const Tensor& key, const Tensor& value, Tensor& key_cache, Tensor& value_cache,
                              const Tensor& given_slots) {
  check_cache(key, value, key_cache, value_cache, given_slots);
  const Tensor slots = contiguous(given_slots);
  const auto write = [&](const Tensor& given, const Tensor& target) {
    const Tensor source = contiguous(given);
    const opwheel::TensorInfo from(source), to(target);
    CacheWrite arguments{.source = data<void>(source),
                         .cache = data<void>(target),
                         .slots = data<int64_t>(slots),
                         .heads = from.sizes[1],
                         .length = from.sizes[2],
                         .blocks = to.sizes[0],
                         .block_size = to.sizes[1],
                         .strides = {},
                         .element_bytes = opwheel::element_size(from)};
    std::copy_n(to.strides, 4, arguments.strides);
    run(device_of(key), arguments, from.sizes[0]);
  };
  write(key, key_cache);
  write(value, value_cache);
}

}  // namespace transformer_ops::cuda
