// The products of matrices of a linear layer's loss, and that loss.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "../arguments.h"
#include "opwheel/cpu/matmul.h"

namespace transformer_ops::cpu {

using opwheel::cpu::matmul;

// As many rows as have 2^24 logits, 64 MiB in float32: of fewer the products are slower, as each adds to all of the
// weight's gradient, and of many classes more take too much memory. Of few classes as many as have 2^20: a part costs
// the calls of a product and a kernel, which would take longer than what they compute.
inline int64_t rows_at_once(ScalarType dtype, int64_t, int64_t classes) {
  constexpr int64_t kMany = int64_t{1} << 24, kFew = int64_t{1} << 20;
  const auto rows_of = [&](int64_t logits) { return logits / std::max<int64_t>(classes, 1) / 64 * 64; };
  const int64_t least = dtype == wide(dtype) ? 128 : 512;
  return std::clamp(rows_of(kMany), least, std::max<int64_t>(rows_of(kFew), 1024));
}

inline Tensor new_buffer(int64_t rows, int64_t classes, ScalarType dtype, opwheel::Device device) {
  return new_empty({rows, classes}, dtype, device);
}

inline Tensor logits_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& buffer) {
  Tensor logits = opwheel::rows_of(buffer, 0, opwheel::TensorInfo(x).sizes[0]);
  if (bias.handle() == nullptr) {
    matmul(logits, x, opwheel::transposed(weight));
  } else {
    opwheel::cpu::matmul_add(logits, bias, x, opwheel::transposed(weight));
  }
  return logits;
}

// The first product is written, those of further rows are added; one of 16-bit numbers has to be made first.
inline void add_product(const Tensor& sum, const Tensor& a, const Tensor& b, ScalarType dtype, bool is_first) {
  if (dtype != wide(dtype)) {
    const Tensor product = new_empty_like(sum, dtype);
    matmul(product, a, b);
    const int64_t count = opwheel::TensorInfo(sum).numel;
    run(device_of(sum), dtype, Accumulate{data<void>(product), data<void>(sum), 1, !is_first}, count, 1);
  } else if (is_first) {
    matmul(sum, a, b);
  } else {
    opwheel::cpu::matmul_add(sum, sum, a, b);
  }
}

#include "transformer_ops/host/linear_cross_entropy.inc.h"

}  // namespace transformer_ops::cpu
