// Tensors seen as rows or as a matrix, for kernels that work on one row at a time and for products of matrices: the
// same memory, without a copy where strides allow it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "opwheel/detail/allocate.h"
#include "opwheel/detail/error.h"
#include "opwheel/detail/layout.h"
#include "opwheel/detail/tensor.h"

namespace opwheel {

// A tensor seen as rows: its last dimension, whose elements follow each other, and all others as one. Where strides do
// not allow that, it holds a contiguous copy.
struct Rows {
  Tensor tensor;
  int64_t rows = 0;
  int64_t length = 0;
  int64_t stride = 0;  // from one row to the next, in elements
  int64_t step = 1;    // from one element to the next: another one is a backend's own, whose kernels know of it

  explicit Rows(const Tensor& given) : Rows(given, [](const Tensor& from) { return contiguous(from); }) {}
  // The same with a backend's own copy(given), which is contiguous.
  template <class Copy>
  Rows(const Tensor& given, const Copy& copy) : tensor(share(given)) {
    if (!has_rows()) {
      tensor = copy(given);
      has_rows();
    }
  }

  // A tensor without gaps in any order of dimensions, as if its elements were in memory as those of a contiguous one:
  // for what is computed from elements at the same place of tensors that share_strides().
  static Rows in_memory_order(const Tensor& given) { return Rows(given, MemoryOrder{}); }

  template <class T = void>
  T* data() const {
    return opwheel::data<T>(tensor);
  }

 protected:
  struct MemoryOrder {};
  Rows(const Tensor& given, MemoryOrder) : tensor(share(given)) {
    const TensorInfo info(tensor);
    length = stride = info.sizes[info.ndim - 1];
    rows = info.numel / length;
  }

 private:
  bool has_rows() {
    const TensorInfo info(tensor);
    length = info.ndim == 0 ? 1 : info.sizes[info.ndim - 1];
    rows = length == 0 ? 0 : info.numel / length;
    stride = length;
    if (info.ndim == 0 || rows == 0) return true;
    if (length > 1 && info.strides[info.ndim - 1] != 1) return false;
    bool is_first = true;
    int64_t next = 0;  // the stride that the next dimension must have
    for (int64_t d = info.ndim - 2; d >= 0; --d) {
      if (info.sizes[d] == 1) continue;
      if (is_first) stride = info.strides[d];
      if (!is_first && info.strides[d] != next) return false;
      is_first = false;
      next = info.strides[d] * info.sizes[d];
    }
    return true;
  }
};

// What was written into the rows of a tensor, to where it belongs, if they are a copy.
inline void copy_to(const Tensor& to, const Rows& rows) { copy_to(to, rows.tensor); }

// Whether tensors have the same strides, which leave no gaps and are not those of contiguous ones. Results of operators
// with memory_format=torch.preserve_format then have them as well (shared_strides() in opwheel/dispatch/rules).
inline bool share_strides(std::initializer_list<const Tensor*> tensors) {
  const TensorInfo first(**tensors.begin());
  if (is_contiguous(first)) return false;
  for (const Tensor* const tensor : tensors) {
    const TensorInfo info(*tensor);
    if (info.ndim != first.ndim || !std::equal(info.sizes, info.sizes + info.ndim, first.sizes) ||
        !std::equal(info.strides, info.strides + info.ndim, first.strides)) {
      return false;
    }
  }
  return is_non_overlapping_and_dense(first);
}

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
// The first elements of a contiguous tensor of one dimension, in its memory.
inline Tensor first_of(const Tensor& tensor, int64_t count) {
  const int64_t stride = 1;
  AtenTensorHandle handle = nullptr;
  OPWHEEL_SHIM(aoti_torch__reinterpret_tensor(tensor.handle(), 1, &count, &stride, 0, &handle));
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
