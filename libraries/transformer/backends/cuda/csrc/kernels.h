// The kernels, each for all rows of a call, on PyTorch's current stream of the device. `cost` is not asked for here.
#pragma once

#include <cstdint>

#include "opwheel/kernels.h"
#include "transformer_ops/kernel_arguments.h"

namespace transformer_ops::cuda {

using opwheel::Device;
using opwheel::ScalarType;

// Writes tokens into the slots of a cache, (blocks, block_size, heads, length) with any strides; negative slots are
// left out. Elements are `element_bytes` wide.
struct CacheWrite {
  const void* source;  // contiguous, (tokens, heads, length)
  void* cache;
  const int64_t* slots;
  int64_t heads, length, blocks, block_size, strides[4], element_bytes;
};

void run(Device, ScalarType, const RmsNorm&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const RmsNormBackward&, int64_t parts, int64_t cost);
void run(Device, ScalarType, const LayerNorm&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const LayerNormBackward&, int64_t parts, int64_t cost);
void run(Device, ScalarType, const SumParts&, int64_t columns, int64_t cost);
void run(Device, ScalarType, const Gated&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const GatedBackward&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const Softmax&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const SoftmaxBackward&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const LogSoftmax&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const LogSoftmaxBackward&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const RopePair&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const CrossEntropy&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const CrossEntropyBackward&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const LossTotal&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const LossScale&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const ColumnSums&, int64_t columns, int64_t cost);
void run(Device, ScalarType, const Scaled&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const Accumulate&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const Quantize&, int64_t rows, int64_t cost);
void run(Device, ScalarType, const Dequantize&, int64_t rows, int64_t cost);
void run(Device, const CacheWrite&, int64_t tokens);

// How many groups rows of this length are summed up in; it depends on the device, not on what else it does.
int64_t part_count(Device, ScalarType, int64_t rows, int64_t length);

}  // namespace transformer_ops::cuda
