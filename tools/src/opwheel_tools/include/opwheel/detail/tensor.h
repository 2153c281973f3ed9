// A tensor as a kernel sees it: an owning handle and a snapshot of its metadata, on the LibTorch stable C ABI. The
// wrappers in torch/csrc/stable/tensor.h do the same through a shared_ptr and dispatcher calls, which cost more than a
// small kernel does (docs/decisions/0002-raw-shim.md).
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "opwheel/detail/dtype.h"
#include "opwheel/detail/error.h"
#include "opwheel/detail/huge_pages.h"
#include "opwheel/detail/result_cache.h"

// Whether the release of PyTorch that the build names (torch_target in setup.py) has numbers for the dtypes
// float8_e8m0fnu and float4_e2m1fn_x2.
#if TORCH_FEATURE_VERSION >= 0x020b000000000000
#define OPWHEEL_DETAIL_HAS_DTYPES_OF_2_11 1
#else
#define OPWHEEL_DETAIL_HAS_DTYPES_OF_2_11 0
#endif

namespace opwheel {

inline constexpr const char* kSupportedDTypes = "torch.float16, torch.bfloat16, torch.float32, torch.float64";

// PyTorch does not promise the numbers behind its dtypes and devices, so they are asked for once per process.
struct Codes {
  int32_t dtypes[4] = {aoti_torch_dtype_float16(), aoti_torch_dtype_bfloat16(), aoti_torch_dtype_float32(),
                       aoti_torch_dtype_float64()};

  static const Codes& get() {
    static const Codes codes;
    return codes;
  }
};

inline DType dtype_from_code(int32_t code) {
  const Codes& codes = Codes::get();
  for (int i = 0; i < 4; ++i) {
    if (codes.dtypes[i] == code) return static_cast<DType>(i);
  }
  return DType::unsupported;
}

// The place of a dtype in tables that have an entry for each of DType's four.
inline std::size_t index_of(DType dtype) {
  if (dtype == DType::unsupported) {
    fail("a dtype is none of ", kSupportedDTypes,
         ", and this kernel has code for those alone; check its arguments first");
  }
  return static_cast<std::size_t>(dtype);
}

inline int32_t code_of(DType dtype) { return Codes::get().dtypes[index_of(dtype)]; }

// Bytes of an element.
inline int64_t element_size(DType dtype) {
  constexpr int64_t kSizes[] = {2, 2, 4, 8};
  return kSizes[index_of(dtype)];
}
// Of any dtype, by PyTorch's number.
inline int64_t element_size(int32_t code) { return static_cast<int64_t>(aoti_torch_dtype_element_size(code)); }

// As Python writes it. A library has the names that the C functions of the torch release it is built for give.
inline std::string dtype_name(int32_t code) {
  const std::pair<int32_t, const char*> names[] = {
      {aoti_torch_dtype_float16(), "float16"},
      {aoti_torch_dtype_bfloat16(), "bfloat16"},
      {aoti_torch_dtype_float32(), "float32"},
      {aoti_torch_dtype_float64(), "float64"},
      {aoti_torch_dtype_bool(), "bool"},
      {aoti_torch_dtype_uint8(), "uint8"},
      {aoti_torch_dtype_int8(), "int8"},
      {aoti_torch_dtype_int16(), "int16"},
      {aoti_torch_dtype_int32(), "int32"},
      {aoti_torch_dtype_int64(), "int64"},
      {aoti_torch_dtype_uint16(), "uint16"},
      {aoti_torch_dtype_uint32(), "uint32"},
      {aoti_torch_dtype_uint64(), "uint64"},
      {aoti_torch_dtype_complex32(), "complex32"},
      {aoti_torch_dtype_float8_e5m2(), "float8_e5m2"},
      {aoti_torch_dtype_float8_e4m3fn(), "float8_e4m3fn"},
      {aoti_torch_dtype_float8_e5m2fnuz(), "float8_e5m2fnuz"},
      {aoti_torch_dtype_float8_e4m3fnuz(), "float8_e4m3fnuz"},
      {aoti_torch_dtype_complex64(), "complex64"},
      {aoti_torch_dtype_complex128(), "complex128"},
#if OPWHEEL_DETAIL_HAS_DTYPES_OF_2_11
      {torch_dtype_float8_e8m0fnu(), "float8_e8m0fnu"},
      {torch_dtype_float4_e2m1fn_x2(), "float4_e2m1fn_x2"},
#endif
  };
  for (const auto& [known, name] : names) {
    if (known == code) return std::string("torch.") + name;
  }
  return "a dtype that C++ kernels have no name for (PyTorch's number " + std::to_string(code) + ")";
}

// The name of the device PrivateUse1, for messages. PyTorch's C interface does not tell it, so a backend for such a
// device is compiled with the name that its package has given it.
#ifndef OPWHEEL_PRIVATEUSE1_NAME
#define OPWHEEL_PRIVATEUSE1_NAME "privateuseone"
#endif

inline std::string device_name(int32_t type, int32_t index) {
  const std::pair<int32_t, const char*> names[] = {
      {aoti_torch_device_type_cpu(), "cpu"},   {aoti_torch_device_type_cuda(), "cuda"},
      {aoti_torch_device_type_xpu(), "xpu"},   {aoti_torch_device_type_mps(), "mps"},
      {aoti_torch_device_type_meta(), "meta"}, {aoti_torch_device_type_privateuse1(), OPWHEEL_PRIVATEUSE1_NAME},
  };
  for (const auto& [known, name] : names) {
    if (known != type) continue;
    std::string text(name);
    if (index >= 0 && type != aoti_torch_device_type_cpu()) text.append(1, ':').append(std::to_string(index));
    return text;
  }
  return "device type " + std::to_string(type);
}

struct Device {
  int32_t type = -1;  // no device
  int32_t index = -1;
  bool operator==(const Device&) const = default;
  std::string name() const { return device_name(type, index); }
};

class Tensor {
 public:
  Tensor() = default;
  // Takes over the reference that the handle owns.
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  static Tensor empty(int64_t ndim, const int64_t* sizes, const int64_t* strides, DType dtype, Device device) {
    return empty(ndim, sizes, strides, code_of(dtype), element_size(dtype), device);
  }
  // Of a dtype that PyTorch has a number for, with elements of `itemsize` bytes. `strides` leave no gaps.
  static Tensor empty(int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int64_t itemsize,
                      Device device) {
    AtenTensorHandle handle = nullptr;
    int64_t bytes = itemsize;
    for (int64_t i = 0; i < ndim; ++i) bytes *= sizes[i];
    const bool is_large = bytes >= detail::result_cache::kLeast && device.type == aoti_torch_device_type_cpu();
    const auto cached = is_large ? detail::result_cache::empty_strided.load(std::memory_order_relaxed) : nullptr;
    if ((cached != nullptr
             ? cached(ndim, sizes, strides, dtype, &handle)
             : aoti_torch_empty_strided(ndim, sizes, strides, dtype, device.type, device.index, &handle)) != 0 &&
        !with_kept_memory(ndim, sizes, strides, dtype, device, &handle)) {
      fail(code::out_of_memory, " there is no memory for a tensor of ", dtype_name(dtype), " ",
           memory_wanted(bytes, device.name()));
    }
    Tensor tensor(handle);
    if (is_large && bytes >= detail::huge_pages::kLeast) {
      void* data = nullptr;
      OPWHEEL_SHIM(aoti_torch_get_data_ptr(handle, &data));
      detail::huge_pages::advise(data, bytes);
    }
    return tensor;
  }

  AtenTensorHandle handle() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

 private:
  // Where PyTorch's allocator has no memory: the one that keeps some frees all of it first.
  static bool with_kept_memory(int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype, Device device,
                               AtenTensorHandle* handle) {
    const auto cached = detail::result_cache::empty_strided.load(std::memory_order_relaxed);
    return cached != nullptr && device.type == aoti_torch_device_type_cpu() &&
           cached(ndim, sizes, strides, dtype, handle) == 0;
  }

  AtenTensorHandle handle_ = nullptr;
};

// Sizes and strides are borrowed from the tensor: valid until it is resized or restrided.
struct TensorInfo {
  int64_t ndim = 0;
  int64_t numel = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;  // in elements
  int64_t offset = 0;          // in elements, from the start of the storage
  int32_t dtype_code = -1;
  DType dtype = DType::unsupported;
  Device device;

  TensorInfo() = default;
  __attribute__((noinline)) explicit TensorInfo(const Tensor& tensor) {
    const AtenTensorHandle handle = tensor.handle();
    OPWHEEL_SHIM(aoti_torch_get_dim(handle, &ndim));
    OPWHEEL_SHIM(aoti_torch_get_numel(handle, &numel));
    OPWHEEL_SHIM(aoti_torch_get_sizes(handle, &sizes));
    OPWHEEL_SHIM(aoti_torch_get_strides(handle, &strides));
    OPWHEEL_SHIM(aoti_torch_get_storage_offset(handle, &offset));
    OPWHEEL_SHIM(aoti_torch_get_dtype(handle, &dtype_code));
    OPWHEEL_SHIM(aoti_torch_get_device_type(handle, &device.type));
    OPWHEEL_SHIM(aoti_torch_get_device_index(handle, &device.index));
    dtype = dtype_from_code(dtype_code);
  }
};

// Where a tensor is: two of the questions that TensorInfo asks.
inline Device device_of(const Tensor& tensor) {
  Device device;
  OPWHEEL_SHIM(aoti_torch_get_device_type(tensor.handle(), &device.type));
  OPWHEEL_SHIM(aoti_torch_get_device_index(tensor.handle(), &device.index));
  return device;
}

// Bytes of an element, whatever the dtype. PyTorch is asked where it is not one of DType's.
inline int64_t element_size(const TensorInfo& tensor) {
  return tensor.dtype == DType::unsupported ? element_size(tensor.dtype_code) : element_size(tensor.dtype);
}

inline std::string join(int64_t ndim, const int64_t* sizes) {
  std::string text;
  for (int64_t i = 0; i < ndim; ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text;
}

// As Python writes a tuple.
inline std::string shape_text(int64_t ndim, const int64_t* sizes) {
  return "(" + join(ndim, sizes) + (ndim == 1 ? ",)" : ")");
}

inline void append(std::string& text, const TensorInfo& tensor) { text += shape_text(tensor.ndim, tensor.sizes); }

}  // namespace opwheel
