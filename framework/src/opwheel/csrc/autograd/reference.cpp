#include "reference.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "tensors.h"

// ATen/functorch/DynamicLayer.h needs headers that PyTorch does not come with.
namespace at::functorch {
struct DynamicLayer;
TORCH_API const std::vector<DynamicLayer>& getDynamicLayerStack();
}  // namespace at::functorch

namespace opwheel::autograd {

using torch::autograd::variable_list;

// Functorch is not asked in a thread where it has never run: it would create its state for the answer, and from then on
// PyTorch copies that state in every backward pass of the process.
bool transform_is_active() {
  return at::functorch::functorchTLSAccessor() != nullptr && !at::functorch::getDynamicLayerStack().empty();
}

void call_reference(const Operator& op, std::vector<c10::IValue>& stack) {
  TORCH_CHECK(
      op.reference, op.name,
      ": needs the operator's reference, which is in Python: for an input without a formula in text, a result whose "
      "gradient no formula names, a second derivative of one that keeps a result, forward mode or a torch.func "
      "transform. Import the operator's "
      "library in Python, or declare the derivative as text");
  op.reference->callBoxed(&stack);
}

variable_list gradients_through_reference(const Operator& op, at::ArrayRef<c10::IValue> arguments,
                                          const std::vector<bool>& needed, const variable_list& gradients) {
  const bool again = at::GradMode::is_enabled();
  const at::AutoGradMode recording(true);
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);  // as the forward kernel
  variable_list inputs;
  size_t position = 0;
  // A view by which may be differentiated, and through which a second derivative reaches the argument. Gradients depend
  // on arguments whose own gradients are not needed now, and may be differentiated by these later.
  const auto leaf = [&](const at::Tensor& tensor) {
    if (!needed[position++]) return again ? tensor : tensor.detach();
    inputs.push_back(again ? tensor.view_as(tensor) : tensor.detach().requires_grad_());
    return inputs.back();
  };
  std::vector<c10::IValue> stack = arguments.vec();
  for (int i : op.tensors) stack[i] = with_tensors(arguments[i], leaf);
  if (op.is_in_place) stack[0] = stack[0].toTensor().clone();  // which the reference overwrites
  call_reference(op, stack);

  variable_list outputs, incoming;
  for (int i = 0; i < op.result_count; ++i) {
    const at::Tensor& result = stack[i].toTensor();
    if (!gradients[i].defined() || !result.requires_grad()) continue;
    outputs.push_back(result);
    incoming.push_back(gradients[i]);
  }
  variable_list found(inputs.size());
  if (!outputs.empty()) found = torch::autograd::grad(outputs, inputs, incoming, again, again, /*allow_unused=*/true);
  variable_list all(needed.size());
  for (size_t i = 0, next = 0; i < needed.size(); ++i) {
    if (needed[i]) all[i] = found[next++];
  }
  return all;
}

}  // namespace opwheel::autograd
