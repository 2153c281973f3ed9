// The few ATen operators that make tensors and copy them; every other one is computed on the CPU.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "../simulated_copies.h"
#include "device.h"

namespace simulated_xpu {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::XPU);

at::IntArrayRef ints(SymIntArrayRef values) { return C10_AS_INTARRAYREF_SLOW(values); }

c10::Device given_or_current(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(kType, current_device());
}

Tensor empty(SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(given_or_current(device));
  return at::detail::empty_generic(ints(sizes), &allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(SymIntArrayRef sizes, SymIntArrayRef strides, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(given_or_current(device));
  return at::detail::empty_strided_generic(ints(sizes), ints(strides), &allocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

Tensor as_strided(const Tensor& self, SymIntArrayRef sizes, SymIntArrayRef strides, std::optional<SymInt> offset) {
  const auto from = offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(self, ints(sizes), ints(strides), from);
}

Tensor view(const Tensor& self, SymIntArrayRef sizes) { return at::native::view(self, ints(sizes)); }

Tensor reshape_alias(const Tensor& self, SymIntArrayRef sizes, SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, ints(sizes), ints(strides));
}

Tensor& set_source(Tensor& self, at::Storage source, SymInt offset, SymIntArrayRef sizes, SymIntArrayRef strides) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  impl->set_sizes_and_strides(ints(sizes), ints(strides));
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage source) {
  const SymInt length(static_cast<int64_t>(source.nbytes() / self.dtype().itemsize()));
  const SymInt stride(1);
  return set_source(self, std::move(source), 0, {length}, {stride});
}

const Tensor& resize(const Tensor& self, SymIntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  at::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  impl->set_sizes_contiguous(ints(sizes));
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  const std::size_t needed = (self.numel() + self.storage_offset()) * self.element_size();
  if (needed <= storage->nbytes()) return self;
  const c10::DeviceGuard guard(self.device());
  c10::DataPtr data = allocator().allocate(needed);
  if (storage->nbytes() != 0) allocator().copy_data(data.get(), storage->data(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(needed);
  return self;
}

// ---- copies ----

std::size_t extent(const Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
}

void transfer(const Tensor& device_side, void* to, const void* from) {
  const std::size_t bytes = extent(device_side);
  if (bytes == 0) return;
  open_memory(device_side.device().index());
  current_queue(device_side.device().index()).memcpy(to, from, bytes).wait_and_throw();
}

// A CPU tensor with the same strides, whatever lies between the elements included.
Tensor download(const Tensor& tensor) {
  if (tensor.device().type() != kType) return tensor;
  const auto options = tensor.options().device(c10::kCPU);
  const auto buffer = std::make_shared<std::vector<char>>(std::max<std::size_t>(extent(tensor), 1));
  transfer(tensor, buffer->data(), tensor.const_data_ptr());
  return at::from_blob(buffer->data(), tensor.sizes(), tensor.strides(), [buffer](void*) {}, options);
}

bool is_same_block(const Tensor& a, const Tensor& b) {
  return a.device() == b.device() && a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense();
}

Tensor& copy(Tensor& self, const Tensor& source, bool) {
  const c10::DeviceIndex device = self.device().index();
  if (is_same_block(self, source)) {  // in stream order, without waiting
    if (self.numel() == 0) return self;
    open_memory(device);
    current_queue(device).memcpy(self.mutable_data_ptr(), source.const_data_ptr(), self.nbytes());
    return self;
  }
  Tensor values = download(self).copy_(download(source));
  if (self.device().type() == kType) transfer(self, self.mutable_data_ptr(), values.const_data_ptr());
  return self;
}

at::Scalar local_scalar(const Tensor& self) { return download(self).item(); }

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack, /*error_on_views=*/false);
}

const bool has_allocator = [] {
  c10::SetAllocator(kType, &allocator(), 1);
  return true;
}();

}  // namespace
}  // namespace simulated_xpu

using namespace simulated_xpu;

TORCH_LIBRARY_IMPL(_, XPU, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, XPU, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(view));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_source));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("resize_", TORCH_FN(resize));
  m.impl("copy_", TORCH_FN(copy));
  m.impl("_copy_from", TORCH_FN(simulated::copy_from<copy>));
  m.impl("_copy_from_and_resize", TORCH_FN(simulated::copy_from_and_resize<copy>));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
}

TORCH_LIBRARY_IMPL(aten, SparseXPU, m) {
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
}
