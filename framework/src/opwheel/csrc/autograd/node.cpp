#include "node.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>

#include "formula.h"
#include "reference.h"
#include "tensors.h"

namespace opwheel::autograd {

using torch::autograd::variable_list;
using torch::autograd::VariableInfo;

namespace {

// Functions that most backward passes do not call are not inlined, so that what they run is close together in memory.

// What was kept, and what is wanted: all that the gradients follow from.
struct Backward {
  const Operator& op;
  const Plan& plan;
  const variable_list& gradients;
  const variable_list& saved;
  const std::vector<c10::IValue>& others;
  const Counts& counts;
  const std::vector<VariableInfo>& shapes;
  const Outputs& outputs;
  size_t target;
  // Gives one of the saved tensors away, of the form of an output's gradient; undefined where somebody may read it
  // later.
  c10::function_ref<at::Tensor(size_t saved, size_t output)> take;
};

// Undefined tensors are None among arguments.
c10::IValue as_argument(const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }

[[gnu::noinline]] c10::IValue as_list(const c10::TypePtr& type, at::ArrayRef<at::Tensor> tensors) {
  const c10::TypePtr element = type->containedType(0);
  c10::impl::GenericList list(element);
  for (const at::Tensor& tensor : tensors) {
    list.push_back(element->kind() == c10::TypeKind::TensorType ? c10::IValue(tensor) : as_argument(tensor));
  }
  return list;
}

// One of the plan's arguments, as the operator was given it.
c10::IValue kept_argument(const Backward& call, int position) {
  size_t i = 0, saved = 0, other = 0;
  for (; call.plan.arguments[i] != position; ++i) {
    const int64_t count = call.counts[i];
    if (count == kOther) {
      ++other;
    } else {
      saved += count == kTensor ? 1 : count;
    }
  }
  if (call.counts[i] == kOther) return call.others[other];
  if (call.counts[i] == kTensor) return as_argument(call.saved[saved]);
  return as_list(call.op.schema().arguments()[position].real_type(),
                 at::ArrayRef(call.saved).slice(saved, call.counts[i]));
}

// Where one of the plan's results is: they are kept behind the arguments.
size_t index_of_result(const Backward& call, int position) {
  const auto& positions = call.plan.results;
  const auto from_end = positions.end() - std::find(positions.begin(), positions.end(), position);
  return call.saved.size() - static_cast<size_t>(from_end);
}

at::Tensor kept_result(const Backward& call, int position) { return call.saved[index_of_result(call, position)]; }

// One of the plan's properties: they are kept behind the arguments that are no tensors.
[[gnu::noinline]] c10::IValue kept_property(const Backward& call, const Expression& property) {
  const auto& properties = call.plan.properties;
  const auto from_end = properties.end() - std::find(properties.begin(), properties.end(), &property);
  return *(call.others.end() - from_end);
}

[[gnu::noinline]] variable_list gradients_by_reference(const Backward& call) {
  std::vector<c10::IValue> arguments;
  arguments.reserve(static_cast<size_t>(call.op.argument_count));
  for (int i = 0; i < call.op.argument_count; ++i) arguments.push_back(kept_argument(call, i));
  std::vector<bool> needed;
  for (const Output& output : call.outputs) needed.push_back(output.is_needed);
  return gradients_through_reference(call.op, arguments, needed, call.gradients);
}

// The gradients that arrived; of several, those that formulas name are zeros where none did.
[[gnu::noinline]] variable_list with_zeros(const Backward& call) {
  variable_list gradients = call.gradients;
  for (size_t i = 0; i < call.plan.gradients.size(); ++i) {
    at::Tensor& gradient = gradients[call.plan.gradients[i]];
    at::OptionalDeviceGuard guard;
    if (!gradient.defined()) gradient = call.shapes[i].zeros(guard);
  }
  return gradients;
}

variable_list gradients_by_formula(const Backward& call) {
  const bool are_several = !call.shapes.empty();
  const variable_list filled = are_several ? with_zeros(call) : variable_list();
  const auto argument = [&](int i) { return kept_argument(call, i); };
  const auto result = [&](int i) { return c10::IValue(kept_result(call, i)); };
  const auto property = [&](const Expression& one) { return kept_property(call, one); };
  const Known known{are_several ? filled : call.gradients, argument, result, property};
  c10::SmallVector<std::vector<c10::IValue>, 2> values(call.plan.formulas.size());  // of each formula
  const auto computed = [&](const Expression& formula, size_t output) {
    if (!formula.in_place) return evaluate_all(formula, known);
    const size_t saved = index_of_result(call, formula.parts[0].index);
    return evaluate_in_place(formula, known, [&] { return call.take(saved, output); });
  };
  const auto gradient_of = [&](const Output& output, size_t i) {
    const Source& source = call.plan.sources[output.argument];
    if (source.formula == Source::kArrives) return known.gradients[source.value];
    auto& of_formula = values[source.formula];
    if (of_formula.empty()) of_formula = computed(*call.plan.formulas[source.formula], i);
    const c10::IValue& value = of_formula[source.value];
    if (value.isNone()) return at::Tensor();
    return value.isList() ? value.toTensorVector().at(output.index) : value.toTensor();
  };
  variable_list gradients(call.outputs.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Output& output = call.outputs[i];
    if (!output.is_needed) continue;
    gradients[i] = gradient_of(output, i);
    const bool is_complex = gradients[i].defined() && gradients[i].is_complex();
    if (is_complex && !output.is_complex) gradients[i] = at::real(gradients[i]);
  }
  return gradients;
}

variable_list gradients_of_tensors(const Backward& call) {
  const Positions& uncovered = call.plan.uncovered;
  const bool by_reference =
      call.plan.without_formula || (call.plan.is_inexact_again && at::GradMode::is_enabled()) ||
      std::any_of(uncovered.begin(), uncovered.end(), [&](int i) { return call.gradients[i].defined(); });
  return by_reference ? gradients_by_reference(call) : gradients_by_formula(call);
}

// What was drawn does not depend on the inputs, but formulas cannot say more than once how: these gradients refuse to
// be differentiated.
[[gnu::noinline]] variable_list gradients_of_random(const Backward& call) {
  variable_list gradients;
  {
    const at::NoGradGuard guard;
    gradients = gradients_of_tensors(call);
  }
  auto error = make_node<torch::autograd::DelayedError>(
      call.op.name + ": trying to differentiate twice an operator that draws random numbers",
      static_cast<int64_t>(gradients.size()));
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) gradient = gradient.detach().requires_grad_();
  }
  return (*error)(std::move(gradients));
}

[[gnu::noinline]] void put_first(variable_list& gradients, size_t position) {
  const auto first = gradients.begin() + static_cast<std::ptrdiff_t>(position);
  std::rotate(gradients.begin(), first, first + 1);
}

variable_list backward(const Backward& call) {
  TORCH_CHECK(
      call.op.is_differentiable, call.op.name,
      ": is not differentiable, but a gradient has arrived at its result; .detach() the result, or call it under "
      "torch.no_grad()");
  const bool none =
      std::none_of(call.gradients.begin(), call.gradients.end(), [](const auto& g) { return g.defined(); });
  if (none) return variable_list(call.outputs.size());
  variable_list result =
      call.op.is_random && at::GradMode::is_enabled() ? gradients_of_random(call) : gradients_of_tensors(call);
  if (call.target != 0) put_first(result, call.target);
  return result;
}

}  // namespace

std::string Derivative::name() const { return op_.name + "_derivative"; }

void Derivative::keep_argument(const c10::IValue& value) {
  const size_t before = saved_.size();
  if (value.isTensor()) {
    saved_.emplace_back(value.toTensor(), false);
    counts_.push_back(kTensor);
    return;
  }
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) saved_.emplace_back(tensor, false);
  } else if (value.isList() && value.type()->containedType(0)->kind() == c10::TypeKind::OptionalType) {
    for (const c10::IValue& element : value.toListRef()) {
      saved_.emplace_back(element.isTensor() ? element.toTensor() : at::Tensor(), false);
    }
  } else {
    others_.push_back(value);
    counts_.push_back(kOther);
    return;
  }
  counts_.push_back(static_cast<int64_t>(saved_.size() - before));
}

void Derivative::keep_arguments(const Plan& plan, at::ArrayRef<c10::IValue> all) {
  plan_ = &plan;
  for (int i : plan.arguments) keep_argument(all[i]);
  keep_properties(Expression::Kind::argument, all);
}

void Derivative::keep_result(const at::Tensor& result) {
  // A result without a gradient has no history that could lead back to this node.
  saved_.emplace_back(result, result.requires_grad(), op_.is_in_place && result.is_view());
}

void Derivative::keep_these_properties(Expression::Kind whose, at::ArrayRef<c10::IValue> values) {
  for (const Expression* property : plan_->properties) {
    const Expression& tensor = property->parts[0];
    if (tensor.kind == whose) others_.push_back(property_of(*property, values[tensor.index]));
  }
}

void Derivative::release_variables() {
  const std::scoped_lock lock(mutex_);
  for (auto& saved : saved_) saved.reset_data();
}

variable_list Derivative::unpacked() {
  variable_list tensors;
  tensors.reserve(saved_.size());
  for (auto& saved : saved_) tensors.push_back(saved.unpack(getptr()));
  return tensors;
}

// The outputs, with what this backward pass needs of them.
Outputs Derivative::wanted() const {
  Outputs outputs;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    const bool is_needed = output.is_needed && task_should_compute_output(edge_of(i));
    outputs.push_back({output.argument, output.index, is_needed, output.is_complex});
  }
  return outputs;
}

variable_list Derivative::apply(variable_list&& gradients) {
  variable_list saved;
  {
    const std::scoped_lock lock(mutex_);
    saved = unpacked();
  }
  const auto taken = [&](size_t i, size_t output) { return take(saved, i, output); };
  return backward({op_, *plan_, gradients, saved, others_, counts_, shapes_, wanted(), target_, taken});
}

// What the engine asks before it adds to a gradient in place (InputBuffer::add): nothing else has the tensor or its
// memory. And nobody can unpack it later: neither another pass, because the engine frees the graph after this one, nor
// one that runs at the same time, because it is taken out of the node here. They are refused as PyTorch refuses them.
// (What is to be differentiated again comes from the reference, as such a result has no gradient: is_inexact_again.)
at::Tensor Derivative::take(variable_list& unpacked, size_t saved, size_t output) {
  at::Tensor& tensor = unpacked[saved];
  const bool is_last_pass = !torch::autograd::get_current_graph_task_keep_graph() &&
                            torch::autograd::get_current_node().get() == this;  // not called by a hook
  if (!is_last_pass || at::isTensorSubclassLike(tensor) || !tensor.has_storage() || tensor.requires_grad()) {
    return {};
  }
  const torch::autograd::Edge& edge = next_edge(edge_of(output));
  const torch::autograd::InputMetadata& wanted = edge.function->input_metadata(edge.input_nr);
  const bool has_form =
      wanted.device() == tensor.device() && wanted.dtype() == tensor.dtype() && wanted.is_same_shape(tensor);
  // Memory that does not come from PyTorch's allocator (an array of NumPy) may have other users.
  if (!has_form || !tensor.storage().resizable()) return {};
  const std::scoped_lock lock(mutex_);
  const bool is_kept = saved_[saved].get_raw_data().value_or(at::Tensor()).is_same(tensor);  // none with hooks
  const c10::Storage& storage = tensor.storage();
  if (!is_kept || !is_held_by(2, tensor.use_count(), *tensor.unsafeGetTensorImpl()) ||  // by unpacked and saved_
      !is_held_by(1, storage.use_count(), *storage.unsafeGetStorageImpl())) {
    return {};
  }
  saved_[saved].reset_data();
  return std::move(tensor);
}

void Derivative::compiled_args(torch::autograd::CompiledNodeArgs& args) const {
  args.collect(reinterpret_cast<uint64_t>(plan_));  // which stands for the operator as well
  args.collect(saved_, /*is_output=*/true);
  args.collect(others_);
  for (int64_t count : counts_) args.collect(count);
  args.collect(shapes_);
  for (const Output& output : outputs_) {
    args.collect(static_cast<int64_t>(output.argument));
    args.collect(static_cast<int64_t>(output.index));
    args.collect(output.is_needed);
    args.collect(output.is_complex);
  }
  args.collect(static_cast<uint64_t>(target_));
}

// Compiled autograd records a function of the gradients and of what was kept, and calls it with symbols first.
variable_list Derivative::apply_with_saved(const variable_list& inputs, torch::autograd::SwapSavedVariables& saved) {
  saved.before(saved_);
  saved.before(others_);
  saved.before(shapes_);

  torch::dynamo::autograd::PackedArgs packed;
  packed.pack(unpacked());
  packed.pack(shapes_);
  for (const c10::IValue& other : others_) packed.pack(other);
  const std::vector<c10::IValue> arguments = packed.vec();
  std::vector<c10::TypePtr> types;
  types.reserve(arguments.size());
  for (const c10::IValue& argument : arguments) types.push_back(argument.type());

  auto function = [&op = op_, &plan = *plan_, counts = counts_, outputs = wanted(), target = target_](
                      const variable_list& gradients, const std::vector<c10::IValue>& given) {
    torch::dynamo::autograd::PackedArgs packed(given);
    const auto saved = packed.unpack<variable_list>();
    const auto shapes = packed.unpack<std::vector<VariableInfo>>();
    const std::vector<c10::IValue> others(given.begin() + 2, given.end());
    const auto none = [](size_t, size_t) { return at::Tensor(); };
    return backward({op, plan, gradients, saved, others, counts, shapes, outputs, target, none});
  };
  const auto metadata =
      torch::dynamo::autograd::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
          torch::dynamo::autograd::get_input_metadata(next_edges()));
  const auto& compiler = torch::dynamo::autograd::getPyCompilerInterface();
  const bool is_traceable =
      !plan_->without_formula && plan_->uncovered.empty() && !plan_->is_inexact_again && op_.is_differentiable;
  const std::string name = compiler->bind_function(saved.get_py_compiler(), Derivative::name(), function, types,
                                                   /*is_custom_function=*/true, is_traceable);
  variable_list results =
      compiler->call_function(saved.get_py_compiler(), "apply_functional", name, inputs, arguments, metadata);

  saved.after(saved_);
  saved.after(others_);
  saved.after(shapes_);
  return results;
}

}  // namespace opwheel::autograd
