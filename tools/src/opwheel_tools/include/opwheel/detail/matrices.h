// Tensors seen as matrices, without a copy.
#pragma once

#include <cstdint>

#include "opwheel/detail/error.h"
#include "opwheel/detail/tensor.h"

namespace opwheel {
namespace detail {

inline TensorInfo matrix_info(const Tensor& matrix) {
  const TensorInfo info(matrix);
  if (info.ndim != 2) fail("a tensor of shape ", info, " is no matrix; pass one of two dimensions");
  return info;
}

}  // namespace detail

// The same memory, seen as a matrix; strides and offset are in elements. Nothing checks that it lies within the
// storage.
inline Tensor as_matrix(const Tensor& tensor, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                        int64_t offset) {
  const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, column_stride};
  AtenTensorHandle handle = nullptr;
  OPWHEEL_SHIM(aoti_torch__reinterpret_tensor(tensor.handle(), 2, sizes, strides, offset, &handle));
  return Tensor(handle);
}
// Rows begin <= i < begin + count of a matrix.
inline Tensor rows_of(const Tensor& matrix, int64_t begin, int64_t count) {
  const TensorInfo info = detail::matrix_info(matrix);
  if (begin < 0 || count < 0 || begin + count > info.sizes[0]) {
    fail("rows ", begin, " to ", begin + count, " of a matrix of shape ", info, "; pass rows that it has");
  }
  return as_matrix(matrix, count, info.sizes[1], info.strides[0], info.strides[1], begin * info.strides[0]);
}
inline Tensor transposed(const Tensor& matrix) {
  const TensorInfo info = detail::matrix_info(matrix);
  return as_matrix(matrix, info.sizes[1], info.sizes[0], info.strides[1], info.strides[0], 0);
}

}  // namespace opwheel
