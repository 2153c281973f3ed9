// Kernels at operators that others define: a call that meets a condition goes to an operator of ours, every other one
// to the kernel that was there before. What the condition is not asked about, because the tensors or the call are
// special, is decided in Python (foreign/kernel.py), which is also what there is without this library.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/cross_entropy_loss_ops.h>
#include <ATen/ops/layer_norm_ops.h>
#include <ATen/ops/rms_norm_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>
#include <torch/library.h>

#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "argument.h"
#include "condition.h"
#include "previous.h"

namespace opwheel::foreign {
namespace {

enum class Decision { ours, previous, in_python };

// What a plain dense tensor of the device may have. Conjugate, negated, sparse, quantised, nested and functorch's
// tensors have other keys.
c10::DispatchKeySet plain_keys(c10::DispatchKey key) {
  const c10::BackendComponent backend = c10::toBackendComponent(key);
  return c10::DispatchKeySet(c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::Dense, backend)) |
         c10::getAutogradRelatedKeySetFromBackend(backend) | c10::getAutocastRelatedKeySetFromBackend(backend) |
         c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
}

struct Override {
  c10::OperatorHandle op;
  c10::OperatorHandle ours;
  c10::OperatorHandle in_python;
  c10::DispatchKey key;
  c10::DispatchKeySet plain;
  std::vector<size_t> tensors;  // positions of arguments
  std::vector<Condition> conditions;

  Decision decide(const Argument* arguments) const {
    for (const size_t position : tensors) {
      const auto* found = std::get_if<const at::Tensor*>(&arguments[position]);
      if (found == nullptr) continue;
      const at::Tensor& tensor = **found;
      const c10::DispatchKeySet keys = tensor.key_set();
      if (keys.has(c10::DispatchKey::Python)) return Decision::in_python;
      // Not keys - plain, which leaves the backend.
      if ((keys.raw_repr() & ~plain.raw_repr()) != 0) return Decision::previous;
      if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return Decision::previous;
      if (tensor._fw_grad(0).defined()) return Decision::previous;
    }
    if (c10::impl::TorchDispatchModeTLS::any_modes_set(true)) return Decision::previous;
    for (const Condition& condition : conditions)
      if (!condition.holds(arguments)) return Decision::previous;
    return Decision::ours;
  }
};

// Of any operator: calls come in boxes.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  BoxedKernel(Override description, c10::SafeKernelFunction previous)
      : override_(std::move(description)), previous_(std::move(previous)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    c10::SmallVector<Argument, 16> arguments;
    for (size_t i = stack->size() - count; i < stack->size(); ++i) arguments.push_back(viewed((*stack)[i]));
    switch (override_.decide(arguments.data())) {
      case Decision::ours: {
        const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
        override_.ours.callBoxed(stack);
        return;
      }
      case Decision::previous:
        previous_.callBoxed(op, keys, stack);
        return;
      case Decision::in_python:
        override_.in_python.callBoxed(stack);
        return;
    }
  }

 private:
  Override override_;
  c10::SafeKernelFunction previous_;
};

// Of an operator whose C++ type is known: nothing is put into boxes for a call that goes to the kernel that was there.
template <class Function>
class TypedKernel;

template <class Return, class... Args>
class TypedKernel<Return(Args...)> {
 public:
  TypedKernel(Override description, c10::SafeKernelFunction previous)
      : override_(std::move(description)),
        previous_(std::move(previous)),
        ours_(override_.ours.typed<Return(Args...)>()),
        in_python_(override_.in_python.typed<Return(Args...)>()) {}

  Return operator()(c10::DispatchKeySet keys, Args... args) const {
    const std::array<Argument, sizeof...(Args)> arguments{viewed(args)...};
    const Decision decision = override_.decide(arguments.data());
    if (decision == Decision::previous)
      return previous_kernel(previous_).template call<Return, Args...>(override_.op, keys, std::forward<Args>(args)...);
    const bool is_ours = decision == Decision::ours;
    const c10::impl::ExcludeDispatchKeyGuard without_autocast(is_ours ? c10::autocast_dispatch_keyset
                                                                      : c10::DispatchKeySet());
    return (is_ours ? ours_ : in_python_).call(std::forward<Args>(args)...);
  }

 private:
  Override override_;
  c10::SafeKernelFunction previous_;
  c10::TypedOperatorHandle<Return(Args...)> ours_, in_python_;
};

template <class Operator>
bool make_typed(Override& description, c10::SafeKernelFunction& previous, std::optional<torch::CppFunction>& made) {
  const c10::OperatorName& name = description.op.operator_name();
  if (name.name != Operator::name || name.overload_name != Operator::overload_name) return false;
  using Kernel = TypedKernel<typename Operator::schema>;
  made.emplace(Kernel(std::move(description), std::move(previous)));
  return true;
}

// `Operators` are PyTorch's own that libraries have kernels for; any other one is called in boxes.
template <class... Operators>
torch::CppFunction make_kernel(Override description, c10::SafeKernelFunction previous) {
  std::optional<torch::CppFunction> made;
  if ((make_typed<Operators>(description, previous, made) || ...)) return std::move(*made);
  return torch::CppFunction::makeFromBoxedFunctor(
      std::make_unique<BoxedKernel>(std::move(description), std::move(previous)));
}

// Throws if PyTorch is of another minor release than the one that this was built for: its classes are others.
void check_release() {
  const auto minor = [](uint64_t version) {
    return std::to_string(version >> 56) + "." + std::to_string(version >> 48 & 0xff);
  };
  const std::string here = minor(aoti_torch_abi_version()), wanted = minor(TORCH_ABI_VERSION);
  if (here != wanted) throw std::invalid_argument("built for PyTorch " + wanted + ", and in this process is " + here);
}

c10::OperatorHandle find(std::istream& text) {
  std::string name, overload;
  text >> name >> overload;
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload == "default" ? "" : overload.c_str());
}

// `NAME OVERLOAD` of the operator, of ours and of the decision in Python; the key; how many conditions; the conditions.
Override read(std::istream& text) {
  const c10::OperatorHandle op = find(text), ours = find(text), in_python = find(text);
  std::string key;
  size_t conditions = 0;
  text >> key >> conditions;
  const c10::DispatchKey place = c10::parseDispatchKey(key);
  Override description{op, ours, in_python, place, plain_keys(place), {}, {}};
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto optional = arguments[i].real_type()->cast<c10::OptionalType>();
    const c10::Type& type = optional ? *optional->getElementType() : *arguments[i].real_type();
    if (type.kind() == c10::TypeKind::TensorType) description.tensors.push_back(i);
  }
  for (size_t i = 0; i < conditions; ++i) description.conditions.push_back(Condition::read(text));
  return description;
}

// PyTorch warns of a kernel in the place of another one.
class Quiet final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

std::unique_ptr<torch::Library> install(const std::string& text, const char* place) {
  check_release();
  std::istringstream stream(text);
  Override description = read(stream);
  const c10::DispatchKey key = description.key;
  const c10::OperatorName name = description.op.operator_name();
  c10::SafeKernelFunction previous = description.op.getComputedKernelForDispatchKey(key);
  const std::string space = name.name.substr(0, name.name.find("::"));
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, space, std::nullopt, place, __LINE__);
  Quiet handler;
  const c10::WarningUtils::WarningHandlerGuard quiet(&handler);
  const std::string overload = name.overload_name.empty() ? "" : "." + name.overload_name;
  library->impl(
      (name.name + overload).c_str(),
      torch::dispatch(
          key,
          make_kernel<at::_ops::rms_norm, at::_ops::layer_norm, at::_ops::_softmax, at::_ops::_softmax_backward_data,
                      at::_ops::_log_softmax, at::_ops::_log_softmax_backward_data, at::_ops::cross_entropy_loss,
                      at::_ops::_scaled_dot_product_flash_attention_for_cpu,
                      at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward>(std::move(description),
                                                                                      std::move(previous))));
  return library;
}

}  // namespace
}  // namespace opwheel::foreign

extern "C" {

// Registers a kernel in the place of another one; read() describes the text. `place` is what the dispatcher then says
// of where it was registered.
//
// Returns a handle for opwheel_foreign_remove. Null: nothing was registered, and message, of size bytes, says why.
__attribute__((visibility("default"))) void* opwheel_foreign_install(const char* text, const char* place, char* message,
                                                                     size_t size) {
  try {
    return opwheel::foreign::install(text, place).release();
  } catch (const c10::Error& error) {
    snprintf(message, size, "%s", error.what_without_backtrace());
  } catch (const std::exception& error) {
    snprintf(message, size, "%s", error.what());
  }
  return nullptr;
}

__attribute__((visibility("default"))) void opwheel_foreign_remove(void* handle) {
  delete static_cast<torch::Library*>(handle);
}
}
