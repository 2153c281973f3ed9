// Checks of a kernel's arguments that read like sentences:
//
//     check(x, "x").dtype(floating).at_least(1).contiguous();
//     check(weight, "weight").same_device(x, "x").same_dtype(x, "x").shape({columns});
//
// What does not hold is an error that names the argument, what it is and what is expected; the operator's name is put
// in front of it. check() itself refuses a tensor whose memory was freed; it must be a defined one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "opwheel/detail/dtypes.h"
#include "opwheel/detail/tensor.h"

namespace opwheel {

class Check {
 public:
  Check(const Tensor& tensor, std::string_view name) : handle_(tensor.handle()), info_(tensor), name_(name) {
    if (info_.numel > 0 && !has_memory()) {
      refuse(
          "has no memory: its storage was resized to nothing, or it is a tensor of a subclass without data; pass a "
          "tensor that holds its elements");
    }
  }

  const Check& dtype(DTypes expected) const {
    if (!expected.has_code(info_.dtype_code)) {
      refuse("is ", dtype_name(info_.dtype_code), ", expected one of ", expected.text(), "; convert it with .to(...)");
    }
    return *this;
  }
  const Check& ndim(int64_t expected) const {
    if (info_.ndim != expected) refuse("has ", info_.ndim, " dimensions, expected ", expected, "; reshape it");
    return *this;
  }
  const Check& at_least(int64_t expected) const {
    if (info_.ndim < expected) refuse("has ", info_.ndim, " dimensions, expected at least ", expected, "; reshape it");
    return *this;
  }
  // -1 stands for any size.
  const Check& shape(std::initializer_list<int64_t> expected) const {
    bool same = info_.ndim == static_cast<int64_t>(expected.size());
    int64_t dim = 0;
    for (int64_t size : expected) {
      if (!same) break;
      same = size == -1 || info_.sizes[dim] == size;
      ++dim;
    }
    if (!same) {
      refuse("has shape ", shape_text(info_.ndim, info_.sizes), ", expected ",
             shape_text(static_cast<int64_t>(expected.size()), expected.begin()), kOfThatShape);
    }
    return *this;
  }
  // The size of a dimension; negative ones count from the last.
  const Check& size(int64_t dim, int64_t expected) const {
    const int64_t position = dim < 0 ? dim + info_.ndim : dim;
    if (position < 0 || position >= info_.ndim || info_.sizes[position] != expected) {
      refuse("has shape ", shape_text(info_.ndim, info_.sizes), ", expected size ", expected, " in dimension ", dim,
             kOfThatShape);
    }
    return *this;
  }
  const Check& same_shape(const Tensor& other, std::string_view other_name) const {
    int64_t ndim = 0, *sizes = nullptr;
    OPWHEEL_SHIM(aoti_torch_get_dim(other.handle(), &ndim));
    OPWHEEL_SHIM(aoti_torch_get_sizes(other.handle(), &sizes));
    bool same = info_.ndim == ndim;
    for (int64_t i = 0; same && i < ndim; ++i) same = info_.sizes[i] == sizes[i];
    if (!same) {
      refuse("has shape ", shape_text(info_.ndim, info_.sizes), ", but '", other_name, "' has ",
             shape_text(ndim, sizes), kOfThatShape);
    }
    return *this;
  }
  const Check& same_dtype(const Tensor& other, std::string_view other_name) const {
    int32_t code = 0;
    OPWHEEL_SHIM(aoti_torch_get_dtype(other.handle(), &code));
    if (info_.dtype_code != code) {
      refuse("is ", dtype_name(info_.dtype_code), ", but '", other_name, "' is ", dtype_name(code),
             "; convert one of them with .to(...)");
    }
    return *this;
  }
  const Check& on(Device expected) const {
    if (info_.device != expected) refuse("is on ", info_.device.name(), ", expected on ", expected.name(), kMoveIt);
    return *this;
  }
  const Check& same_device(const Tensor& other, std::string_view other_name) const {
    const Device device = device_of(other);
    if (info_.device != device) {
      refuse("is on ", info_.device.name(), ", but '", other_name, "' is on ", device.name(), kMoveIt);
    }
    return *this;
  }
  const Check& on_cpu() const { return on_type(aoti_torch_device_type_cpu()); }
  const Check& on_cuda() const { return on_type(aoti_torch_device_type_cuda()); }
  const Check& on_xpu() const { return on_type(aoti_torch_device_type_xpu()); }
  const Check& contiguous() const {
    bool is_contiguous = true;
    OPWHEEL_SHIM(aoti_torch_is_contiguous(handle_, &is_contiguous));
    if (!is_contiguous) refuse("is not contiguous; pass a tensor that is");
    return *this;
  }
  const TensorInfo& info() const { return info_; }

 private:
  static constexpr std::string_view kOfThatShape = "; pass a tensor of that shape";
  static constexpr std::string_view kMoveIt = "; move it with .to(...)";

  // Memory that was freed, and tensors without any of their own, are a null pointer plus the storage's offset.
  bool has_memory() const {
    void* data = nullptr;
    OPWHEEL_SHIM(aoti_torch_get_data_ptr(handle_, &data));
    return reinterpret_cast<intptr_t>(data) != info_.offset * element_size(info_);
  }
  const Check& on_type(int32_t type) const {
    if (info_.device.type != type) {
      refuse("is on ", info_.device.name(), ", expected on ", device_name(type, -1), kMoveIt);
    }
    return *this;
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail("argument '", name_, "' ", parts...);
  }

  AtenTensorHandle handle_;
  TensorInfo info_;
  std::string_view name_;
};

inline Check check(const Tensor& tensor, std::string_view name) { return {tensor, name}; }

}  // namespace opwheel
