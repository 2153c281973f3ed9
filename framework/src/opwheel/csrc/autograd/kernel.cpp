#include "kernel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <exception>

#include "in_place.h"
#include "kernel_errors.h"
#include "reference.h"
#include "tensors.h"

namespace opwheel::autograd {

namespace {

// The tensor arguments of a call, and what autograd has to know of them.
struct TensorScan {
  Given tensors;
  uint64_t needed = 0;  // a bit for each argument with a tensor that requires grad
  bool has_tangent = false;
  bool is_python = false;  // a subclass of Tensor: the memory of its parts is not known here

  void add(const at::Tensor& tensor, int argument, int index) {
    bool requires_grad = false;
    if (tensor.unsafeGetTensorImpl()->autograd_meta() != nullptr) {  // most tensors have none
      requires_grad = tensor.requires_grad();
      has_tangent |= tensor._fw_grad(/*level=*/0).defined();
    }
    needed |= uint64_t{requires_grad} << argument;
    is_python |= tensor.key_set().has(c10::DispatchKey::Python);
    tensors.push_back({&tensor, {argument, index, requires_grad, tensor.is_complex()}});
  }
};

// Throws if an argument that has to be a tensor is None.
TensorScan scan(const Operator& op, const c10::IValue* arguments) {
  TensorScan result;
  for (int i : op.tensors) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor() && value.toTensor().defined()) {
      result.add(value.toTensor(), i, 0);
    } else {
      check_is_tensor(op, value, i);
      for_each_tensor(value, [&](const at::Tensor& tensor, int index) { result.add(tensor, i, index); });
    }
  }
  return result;
}

// Arguments that have no gradient are constants from here on: for the kernel, the reference and the formulas.
[[gnu::noinline]] void detach_constants(const Operator& op, c10::IValue* arguments) {
  for (int i : op.constants) {
    arguments[i] = with_tensors(arguments[i], [](const at::Tensor& tensor) { return tensor.detach(); });
  }
}

// Throws for what is neither functional nor in place, where a gradient would be recorded.
void check_is_recorded(const Operator& op) {
  TORCH_CHECK(!op.is_out, op.name,
              ": functions with out= do not support automatic differentiation, but one of the arguments requires grad. "
              "Leave out= away, or call it under torch.no_grad()");
  if (op.written.empty() || op.is_in_place) return;
  std::string names;
  for (int i : op.written) names += (names.empty() ? "'" : ", '") + op.schema().arguments()[i].name() + "'";
  TORCH_CHECK(
      false, op.name, ": it writes into ", names,
      ", which cannot be differentiated, but one of the arguments requires grad. Call it under torch.no_grad(), or "
      "with .detach() of them");
}

// Throws if a result is an argument, a view of one, or another result: a gradient recorded for it would be lost, or be
// that of the wrong tensor.
void check_results_are_new(const Operator& op, at::ArrayRef<at::Tensor> arguments, const c10::IValue* results) {
  for (int i = 0; i < op.result_count; ++i) {
    const at::Tensor& result = results[i].toTensor();
    if (!result.defined() || !result.has_storage()) continue;
    const auto shares_memory = [&](const at::Tensor& other) {
      return other.has_storage() && other.is_alias_of(result);
    };
    TORCH_CHECK(std::none_of(arguments.begin(), arguments.end(), shares_memory), op.name, ": the kernel returned '",
                op.result_names[i], "' in the memory of an argument; it must be a new tensor");
    TORCH_CHECK(std::none_of(results, results + i, [&](const auto& other) { return shares_memory(other.toTensor()); }),
                op.name, ": the kernel returned '", op.result_names[i],
                "' in the memory of another result; each must be a new tensor");
  }
}

// Connects the node with the tensors among the arguments: the overwritten one first, for which the engine takes the
// first gradient where it is a view (CopySlices).
void connect(const Operator& op, Derivative& node, const Given& tensors) {
  torch::autograd::edge_list edges;
  edges.reserve(tensors.size());
  for (const auto& [tensor, output] : tensors) {
    edges.push_back(output.is_needed ? torch::autograd::impl::gradient_edge(*tensor) : torch::autograd::Edge());
    if (op.is_in_place && output.argument == op.written[0]) {
      node.set_target(edges.size() - 1);
      std::rotate(edges.begin(), edges.end() - 1, edges.end());
    }
    node.add_output(output);
  }
  node.set_next_edges(std::move(edges));
}

}  // namespace

void AutogradKernel::operator()(const c10::OperatorHandle&, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) {
  c10::IValue* const arguments = stack->data() + stack->size() - op_.argument_count;
  if (!op_.constants.empty()) detach_constants(op_, arguments);
  const TensorScan seen = scan(op_, arguments);
  const bool is_recorded = seen.needed && at::GradMode::is_enabled();
  if (seen.has_tangent || transform_is_active()) {
    transformed(keys, *stack, is_recorded || seen.has_tangent);
  } else if (!is_recorded) {
    below(keys, *stack);
  } else if (op_.recorded) {
    call_recorded(*stack);
  } else if (op_.is_in_place && seen.is_python) {
    call_reference(op_, *stack);
  } else {
    record(keys, *stack, seen.tensors, seen.needed);
  }
}

void AutogradKernel::transformed(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack, bool is_recorded) {
  const bool only_writes = !op_.written.empty() && !op_.is_in_place && !op_.is_out;
  if (is_recorded) {
    if (only_writes) check_is_recorded(op_);
    TORCH_CHECK(op_.is_differentiable, op_.name, ": is not differentiable; call it with .detach() of its arguments");
  }
  if (only_writes) {
    below(keys, stack);
  } else {
    call_reference(op_, stack);
  }
}

// It gives these results first, and then what its derivatives need.
void AutogradKernel::call_recorded(std::vector<c10::IValue>& stack) {
  op_.recorded->callBoxed(&stack);
  torch::jit::drop(stack, op_.recorded->schema().returns().size() - op_.result_count);
}

void AutogradKernel::below(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack) {
  const at::AutoDispatchBelowAutograd guard;
  try {
    op_.handle.redispatchBoxed(keys & c10::after_autograd_keyset, &stack);
  } catch (const std::exception& error) {
    raise_better(error);
    throw;
  }
}

// A kernel in Python may ask for x.numpy(), which PyTorch refuses for what requires grad where gradients are on.
void AutogradKernel::below_without_gradients(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack) {
  const at::NoGradGuard guard;
  below(keys, stack);
}

void AutogradKernel::record(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack, const Given& given,
                            uint64_t needed) {
  check_is_recorded(op_);
  if (op_.is_in_place) {
    return record_in_place(keys, stack, given, op_.uncovered.empty() ? op_.plan(needed) : op_.uncovered_plan(needed));
  }
  const Plan& plan = op_.plan(needed);
  const auto node = make_node<Derivative>(op_, plan);
  const auto arguments = torch::jit::last(stack, op_.argument_count);
  connect(op_, *node, given);
  std::vector<c10::IValue> all;  // where the results' dtypes say which of them to keep
  if (op_.uncovered.empty()) {
    node->keep_arguments(plan, arguments);
  } else {
    all = arguments.vec();
  }
  c10::SmallVector<at::Tensor, 4> tensors;  // held, because the call takes the arguments off the stack
  for (const auto& one : given) tensors.push_back(*one.tensor);

  below_without_gradients(keys, stack);

  const size_t first = stack.size() - op_.result_count;
  check_results_are_new(op_, tensors, stack.data() + first);
  bool is_uncovered = false;
  for (int i = 0; i < op_.result_count; ++i) {
    const at::Tensor& result = stack[first + i].toTensor();
    if (op_.without_gradient[i] || !torch::autograd::isDifferentiableType(result.scalar_type())) {
      node->add_input_metadata(result);
      continue;
    }
    if (std::find(op_.uncovered.begin(), op_.uncovered.end(), i) != op_.uncovered.end()) {
      TORCH_CHECK(!op_.is_random, op_.name, ": no formula names the gradient of the result '", op_.result_names[i],
                  "', and the reference would draw again; name it (grads[", i,
                  "]), or the result in not_differentiable");
      is_uncovered = true;
    }
    torch::autograd::set_history(result, node);
  }
  if (!op_.uncovered.empty()) node->keep_arguments(is_uncovered ? op_.uncovered_plan(needed) : plan, all);
  if (op_.result_count > 1) {
    for (int i : plan.gradients) node->keep_shape(stack[first + i].toTensor());
  }
  for (int i : plan.results) node->keep_result(stack[first + i].toTensor());
  node->keep_properties(Expression::Kind::result, at::ArrayRef(stack).slice(first));
}

void AutogradKernel::record_in_place(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack, const Given& given,
                                     const Plan& plan) {
  const auto arguments = torch::jit::last(stack, op_.argument_count);
  const at::Tensor target = arguments[op_.written[0]].toTensor();
  check_may_be_overwritten(op_, target);
  const auto node = make_node<Derivative>(op_, plan);
  connect(op_, *node, given);
  for (int i : plan.arguments) {
    // A formula needs tensors as they were. The copies are differentiable, for second derivatives.
    node->keep_argument(with_tensors(arguments[i], [&](const at::Tensor& tensor) {
      const at::Tensor kept = may_share_memory(target, tensor) ? tensor.clone() : tensor;
      check_may_be_kept(op_, i, kept);
      return kept;
    }));
  }
  node->keep_properties(Expression::Kind::argument, arguments);

  below_without_gradients(keys, stack);

  const auto position = node->add_input_metadata(target);
  torch::autograd::impl::rebase_history(target, {node, position});
  if (!plan.results.empty()) node->keep_result(target);
  node->keep_properties(Expression::Kind::result, {target});
  torch::jit::drop(stack, 1);
  stack.emplace_back(target);
}

void VersionKernel::operator()(const c10::OperatorHandle&, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) {
  const auto arguments = torch::jit::last(*stack, op_.argument_count);
  c10::SmallVector<at::Tensor, 2> targets;
  for (int i : op_.written) {
    check_is_tensor(op_, arguments[i], i);
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor, int) { targets.push_back(tensor); });
  }
  for (const at::Tensor& target : targets) {
    TORCH_CHECK(!target.is_inference() || c10::InferenceMode::is_enabled(), op_.name,
                ": an inference tensor cannot be overwritten outside of torch.inference_mode(); clone");
  }
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op_.handle.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  for (const at::Tensor& target : targets) torch::autograd::impl::bump_version(target);
}

}  // namespace opwheel::autograd
