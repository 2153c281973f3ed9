// Matrix products on the host, computed by PyTorch's own: for kernels that make a product and use it at once, part by
// part. A kernel runs with gradients off, so that nothing of this is recorded.
#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <cstdint>

#include "opwheel/allocate.h"
#include "opwheel/tensor.h"

namespace opwheel::cpu {

// The same memory, seen as a matrix; strides and offset are in elements.
inline Tensor as_matrix(const Tensor& tensor, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                        int64_t offset) {
  const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, column_stride};
  AtenTensorHandle handle = nullptr;
  OPWHEEL_SHIM(aoti_torch__reinterpret_tensor(tensor.handle(), 2, sizes, strides, offset, &handle));
  return Tensor(handle);
}
// Rows begin <= i < begin + count of a matrix.
inline Tensor rows_of(const Tensor& matrix, int64_t begin, int64_t count) {
  const TensorInfo info(matrix);
  return as_matrix(matrix, count, info.sizes[1], info.strides[0], info.strides[1], begin * info.strides[0]);
}
inline Tensor transposed(const Tensor& matrix) {
  const TensorInfo info(matrix);
  return as_matrix(matrix, info.sizes[1], info.sizes[0], info.strides[1], info.strides[0], 0);
}

// out = a @ b
inline void matmul(const Tensor& out, const Tensor& a, const Tensor& b) {
  OPWHEEL_SHIM(aoti_torch_cpu_mm_out(out.handle(), a.handle(), b.handle()));
}
// out = added + a @ b, where `added` may be `out`, or one row for all.
inline void matmul_add(const Tensor& out, const Tensor& added, const Tensor& a, const Tensor& b) {
  OPWHEEL_SHIM(aoti_torch_cpu_addmm_out(out.handle(), added.handle(), a.handle(), b.handle(), 1, 1));
}

}  // namespace opwheel::cpu
