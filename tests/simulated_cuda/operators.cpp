// PyTorch's operators on CUDA tensors without its kernels: they compute on the CPU, and copy there and back.
#include <ATen/ATen.h>
#include <ATen/native/CPUFallback.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../simulated_copies.h"
#include "runtime/runtime.h"

namespace {

using at::Tensor;

// ---- copies: blocks go through the runtime in the order of the stream, everything else through the CPU ----

bool is_block(const Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && !tensor.is_neg() && !tensor.is_conj();
}

void move(void* to, const void* from, std::size_t bytes, c10::Device device) {
  const c10::DeviceGuard guard(device);
  TORCH_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c10::cuda::getCurrentCUDAStream()) == cudaSuccess,
              "the simulated copy failed: ", cudaGetErrorName(cudaGetLastError()));
}

c10::Device cuda_device(const Tensor& a, const Tensor& b) { return a.is_cuda() ? a.device() : b.device(); }

// What lies between the elements comes along, so that strides stay.
Tensor download(const Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  const auto bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
  const Tensor buffer = at::empty(static_cast<int64_t>(bytes), at::kByte);
  if (bytes != 0) move(buffer.mutable_data_ptr(), tensor.const_data_ptr(), bytes, tensor.device());
  Tensor result = at::empty({0}, tensor.options().device(at::kCPU));
  return result.set_(buffer.storage(), 0, tensor.sizes(), tensor.strides());
}

void upload(const Tensor& to, const Tensor& values) {
  const auto bytes = at::detail::computeStorageNbytes(to.sizes(), to.strides(), to.element_size());
  if (bytes != 0) move(to.mutable_data_ptr(), values.const_data_ptr(), bytes, to.device());
}

Tensor& copy(Tensor& self, const Tensor& source, bool) {
  if (self.is_same(source) || self.numel() == 0) return self;
  const bool same_block = self.dtype() == source.dtype() && self.sizes() == source.sizes() &&
                          self.strides() == source.strides() && is_block(self) && is_block(source);
  if (same_block) {
    move(self.mutable_data_ptr(), source.const_data_ptr(), self.nbytes(), cuda_device(self, source));
    return self;
  }
  Tensor values = download(self).copy_(download(source));
  if (self.is_cuda()) upload(self, values);
  return self;
}

// ---- everything else ----

// Where the results belong if the first tensor is a number on the CPU, as in 1 - x: the fallback leaves them there.
std::optional<c10::Device> device_beside_number(c10::ArrayRef<c10::IValue> arguments) {
  const auto is_tensor = [](const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); };
  const auto first = std::find_if(arguments.begin(), arguments.end(), is_tensor);
  if (first == arguments.end() || first->toTensor().is_cuda()) return std::nullopt;
  const auto on_device = std::find_if(
      first, arguments.end(), [&](const c10::IValue& value) { return is_tensor(value) && value.toTensor().is_cuda(); });
  return on_device == arguments.end() ? std::nullopt : std::optional(on_device->toTensor().device());
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const auto device = device_beside_number(arguments);
  // The CPU has generators of its own.
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(arguments.size()); value != stack->end(); ++value) {
    if (value->isGenerator()) *value = c10::IValue();
  }
  try {
    at::native::cpu_fallback(op, stack, /*error_on_views=*/false);
  } catch (const c10::IndexError&) {  // on a device, an assertion of the kernel
    simulated_cuda::break_down(cudaErrorAssert);
    TORCH_CHECK(false, "CUDA error: device-side assert triggered");
  }
  if (!device) return;
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(op.schema().returns().size()); value != stack->end();
       ++value) {
    if (value->isTensor() && value->toTensor().defined()) *value = value->toTensor().to(*device);
  }
}

// These compute nothing and stay as PyTorch has them.
const std::set<std::string> kKept = {
    "aten::empty.memory_format", "aten::empty_strided", "aten::resize_",   "aten::record_stream",
    "aten::is_set_to",           "aten::_pin_memory",   "aten::is_pinned", "aten::_local_scalar_dense",
};

bool gives_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& value) {
    return value.alias_info() != nullptr && !value.alias_info()->isWrite();
  });
}

bool is_kept(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.name.rfind("aten::", 0) != 0 || name.name.rfind("aten::set_", 0) == 0 || kKept.contains(toString(name)) ||
         !op.hasSchema() || gives_view(op.schema());
}

// PyTorch warns that kernels are replaced, which is what is wanted.
struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

std::vector<c10::RegistrationHandleRAII> replace_kernels() {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::RegistrationHandleRAII> replaced;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) || is_kept(*op)) continue;
    replaced.push_back(dispatcher.registerImpl(name, c10::DispatchKey::CUDA,
                                               c10::KernelFunction::makeFromBoxedFunction<&on_cpu>(), std::nullopt,
                                               nullptr, "simulated"));
  }
  return replaced;
}

// Left alone at the end of the process, when the dispatcher may be gone.
const auto& replaced = *new std::vector<c10::RegistrationHandleRAII>(replace_kernels());

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("copy_", TORCH_FN(copy));
  m.impl("_copy_from", TORCH_FN(simulated::copy_from<copy>));
  m.impl("_copy_from_and_resize", TORCH_FN(simulated::copy_from_and_resize<copy>));
}
