// A tensor seen as rows, for kernels that work on one row at a time.
#pragma once

#include <cstdint>

#include "opwheel/detail/allocate.h"
#include "opwheel/detail/tensor.h"

namespace opwheel {

// A tensor seen as rows: its last dimension, whose elements follow each other, and all others as one. Where strides do
// not allow that, it holds a contiguous copy.
struct Rows {
  Tensor tensor;
  int64_t rows = 0;
  int64_t length = 0;
  int64_t stride = 0;  // from one row to the next, in elements

  explicit Rows(const Tensor& given) : tensor(share(given)) {
    if (!has_rows()) {
      tensor = contiguous(given);
      has_rows();
    }
  }

  template <class T = void>
  T* data() const {
    return opwheel::data<T>(tensor);
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

}  // namespace opwheel
