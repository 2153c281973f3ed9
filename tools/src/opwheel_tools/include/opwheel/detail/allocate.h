// New tensors of any dtype and shape, and access to their memory.
#pragma once

#include <torch/csrc/stable/library.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "opwheel/detail/dtypes.h"
#include "opwheel/detail/tensor.h"

namespace opwheel {

using Sizes = std::vector<int64_t>;

inline Sizes sizes_of(const Tensor& tensor) {
  const TensorInfo info(tensor);
  return {info.sizes, info.sizes + info.ndim};
}
inline int64_t numel(const Sizes& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

// A contiguous tensor whose memory holds anything; a dtype by PyTorch's number.
inline Tensor new_empty(int64_t ndim, const int64_t* sizes, int32_t dtype_code, Device device) {
  constexpr int64_t kFew = 8;  // dimensions, for which no memory is asked for
  int64_t few[kFew];
  Sizes many(static_cast<std::size_t>(ndim > kFew ? ndim : 0));
  int64_t* const strides = ndim > kFew ? many.data() : few;
  int64_t following = 1;
  for (int64_t i = ndim; i-- > 0;) {
    strides[i] = following;
    following *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return Tensor::empty(ndim, sizes, strides, dtype_code, element_size(dtype_code), device);
}
inline Tensor new_empty(const Sizes& sizes, ScalarType dtype, Device device) {
  return new_empty(static_cast<int64_t>(sizes.size()), sizes.data(), code_of(dtype), device);
}
inline Tensor new_empty_like(const Tensor& tensor) {
  const TensorInfo info(tensor);
  return new_empty(info.ndim, info.sizes, info.dtype_code, info.device);
}
// Of the shape of a tensor, and another dtype.
inline Tensor new_empty_like(const Tensor& tensor, ScalarType dtype) {
  const TensorInfo info(tensor);
  return new_empty(info.ndim, info.sizes, code_of(dtype), info.device);
}
// The same with the strides of a tensor without gaps, as share_strides() finds them.
inline Tensor new_empty_strided_like(const Tensor& tensor) {
  const TensorInfo info(tensor);
  return Tensor::empty(info.ndim, info.sizes, info.strides, info.dtype_code, element_size(info.dtype_code),
                       info.device);
}

// Another reference to the same tensor.
inline Tensor share(const Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  OPWHEEL_SHIM(aoti_torch_new_tensor_handle(tensor.handle(), &handle));
  return Tensor(handle);
}

// The tensor itself if it is contiguous, else a copy that is.
inline Tensor contiguous(const Tensor& tensor) {
  bool is_contiguous = true;
  OPWHEEL_SHIM(aoti_torch_is_contiguous(tensor.handle(), &is_contiguous));
  if (is_contiguous) return share(tensor);
  Tensor copy = new_empty_like(tensor);
  OPWHEEL_SHIM(aoti_torch_copy_(copy.handle(), tensor.handle(), 0));
  return copy;
}

// Copies the elements of a tensor of the same shape; nothing, where both are the same memory. A kernel that can only
// write contiguous memory writes into y = contiguous(out), and ends with copy_to(out, y).
inline void copy_to(const Tensor& to, const Tensor& from) {
  void *target = nullptr, *source = nullptr;
  OPWHEEL_SHIM(aoti_torch_get_data_ptr(to.handle(), &target));
  OPWHEEL_SHIM(aoti_torch_get_data_ptr(from.handle(), &source));
  if (target != source) OPWHEEL_SHIM(aoti_torch_copy_(to.handle(), from.handle(), 0));
}

// The first element. T must be the dtype's C++ type: dispatch() gives it.
template <class T>
T* data(const Tensor& tensor) {
  void* pointer = nullptr;
  OPWHEEL_SHIM(aoti_torch_get_data_ptr(tensor.handle(), &pointer));
  return static_cast<T*>(pointer);
}

}  // namespace opwheel
