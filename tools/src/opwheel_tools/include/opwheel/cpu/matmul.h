// Matrix products on the host, computed by PyTorch's own: for kernels that make a product and use it at once, part by
// part. A kernel runs with gradients off, so that nothing of this is recorded.
#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <cstdint>

#include "opwheel/detail/allocate.h"
#include "opwheel/detail/layout.h"
#include "opwheel/detail/tensor.h"

namespace opwheel {
namespace detail {

// What PyTorch does with others is not an error that says so: it gives a result of another shape other memory.
inline void check_product(const Tensor& out, const Tensor& a, const Tensor& b) {
  const TensorInfo result(out), left(a), right(b);
  const bool are_matrices = result.ndim == 2 && left.ndim == 2 && right.ndim == 2;
  if (!are_matrices || left.sizes[1] != right.sizes[0] || result.sizes[0] != left.sizes[0] ||
      result.sizes[1] != right.sizes[1]) {
    fail("the shapes of a matrix product do not fit: ", left, " times ", right, " into ", result,
         "; pass (m, k), (k, n) and (m, n)");
  }
  if (left.dtype_code != right.dtype_code || result.dtype_code != left.dtype_code) {
    fail("the dtypes of a matrix product differ: ", dtype_name(left.dtype_code), " times ",
         dtype_name(right.dtype_code), " into ", dtype_name(result.dtype_code), "; pass three tensors of one dtype");
  }
}
inline void check_added(const Tensor& added, const Tensor& out) {
  const TensorInfo given(added), result(out);
  const bool is_row = given.ndim == 1 || (given.ndim == 2 && given.sizes[0] == 1);
  const bool fits =
      (is_row && given.sizes[given.ndim - 1] == result.sizes[1]) || has_shape(given, result.ndim, result.sizes);
  if (!fits) {
    fail("what is added to a matrix product has shape ", given, ", and the product ", result,
         "; pass a tensor of that shape, or one row for all");
  }
  if (given.dtype_code != result.dtype_code) {
    fail("what is added to a matrix product is ", dtype_name(given.dtype_code), ", and the product ",
         dtype_name(result.dtype_code), "; pass tensors of one dtype");
  }
}
}  // namespace detail

namespace cpu {

// out = a @ b, for out (m, n), a (m, k) and b (k, n) of one dtype.
inline void matmul(const Tensor& out, const Tensor& a, const Tensor& b) {
  detail::check_product(out, a, b);
  OPWHEEL_SHIM(aoti_torch_cpu_mm_out(out.handle(), a.handle(), b.handle()));
}
// out = added + a @ b, where `added` may be `out`, or one row for all: (n) or (1, n).
inline void matmul_add(const Tensor& out, const Tensor& added, const Tensor& a, const Tensor& b) {
  detail::check_product(out, a, b);
  detail::check_added(added, out);
  OPWHEEL_SHIM(aoti_torch_cpu_addmm_out(out.handle(), added.handle(), a.handle(), b.handle(), 1, 1));
}

}  // namespace cpu
}  // namespace opwheel
