// The products of matrices of a linear layer's loss, and that loss.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "../arguments.h"
#include "opwheel/call.h"

namespace transformer_ops::cuda {

constexpr int64_t kLogits = int64_t{1} << 26;  // in memory at a time: enough rows for the matrix products to be fast
constexpr int64_t kFewestRows = 256;

OPWHEEL_CALLEE(linear, "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
OPWHEEL_CALLEE(mm_out, "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)")

inline int64_t rows_at_once(ScalarType, int64_t rows, int64_t classes) {
  return std::max<int64_t>(std::min(std::max(kLogits / std::max<int64_t>(classes, 1), kFewestRows), rows), 1);
}

// The logits of each part have memory of their own.
inline Tensor new_buffer(int64_t, int64_t, ScalarType, Device) { return Tensor(); }

inline Tensor logits_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor&) {
  OptionalTensor added;
  if (bias.handle() != nullptr) added = opwheel::share(bias);
  return opwheel::call<linear>(x, weight, added);
}

inline void matmul(const Tensor& out, const Tensor& a, const Tensor& b) {
  Tensor written = opwheel::share(out);
  opwheel::call<mm_out>(a, b, written);
}

// The first product is written, those of further rows are added.
inline void add_product(const Tensor& sum, const Tensor& a, const Tensor& b, ScalarType dtype, bool is_first) {
  if (is_first && dtype == wide(dtype)) return matmul(sum, a, b);
  const Tensor product = new_empty_like(sum, dtype);
  matmul(product, a, b);
  const opwheel::TensorInfo info(sum);
  const Accumulate arguments{data<void>(product), data<void>(sum), info.sizes[1], !is_first};
  run(device_of(sum), dtype, arguments, info.sizes[0], info.sizes[1]);
}

#include "transformer_ops/host/linear_cross_entropy.inc.h"

}  // namespace transformer_ops::cuda
