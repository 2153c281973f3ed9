// The node in the autograd graph: keeps what the formulas name, and computes them.
#pragma once

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable_info.h>

#include <vector>

#include "operator.h"
#include "torch_node.h"

namespace opwheel::autograd {

// A tensor among the arguments, which gets a gradient.
struct Output {
  int argument;
  int index;  // in the argument, if that is a list
  bool is_needed;
  bool is_complex;
};

// Few, and for each node: in place, so that recording a call allocates less.
using Outputs = c10::SmallVector<Output, 4>;
using Counts = c10::SmallVector<int64_t, 4>;

// Instead of the number of tensors of an argument that is a list.
constexpr int64_t kTensor = -1;  // it is one tensor
constexpr int64_t kOther = -2;   // it has none

// Where the engine delivers the gradients that arrive: the node's inputs are the operator's results, and its outputs
// the tensors among the operator's arguments, the one that is overwritten first.
class Derivative : public torch::autograd::Node {
 public:
  Derivative(const Operator& op, const Plan& plan) : op_(op), plan_(&plan) {
    saved_.reserve(plan.arguments.size() + plan.results.size());
  }

  std::string name() const override;

  // For each argument that the plan names, in its order; before any result.
  void keep_argument(const c10::IValue& value);
  // Those that this plan names, of all that were given; it takes the place of the one before.
  void keep_arguments(const Plan& plan, at::ArrayRef<c10::IValue> all);
  void keep_result(const at::Tensor& result);
  // Those of arguments when all arguments are kept, then those of results: values are all that the operator has.
  void keep_properties(Expression::Kind whose, at::ArrayRef<c10::IValue> values) {
    if (!plan_->properties.empty()) keep_these_properties(whose, values);
  }
  // For each gradient that the formulas name, if there are several results: what a zero is. Of a subclass of Tensor,
  // whose zeros may be more than a shape says (DTensor), it is kept.
  void keep_shape(const at::Tensor& result) {
    shapes_.emplace_back(result, /*use_zeros_like=*/result.key_set().has(c10::DispatchKey::Python));
  }
  // For each tensor among the arguments, in their order; the overwritten one is told by set_target, by its position
  // among them.
  void add_output(const Output& output) { outputs_.push_back(output); }
  void set_target(size_t position) { target_ = position; }

  void release_variables() override;
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(const torch::autograd::variable_list& inputs,
                                                  torch::autograd::SwapSavedVariables& saved) override;

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  void keep_these_properties(Expression::Kind whose, at::ArrayRef<c10::IValue> values);
  torch::autograd::variable_list unpacked();
  Outputs wanted() const;
  size_t edge_of(size_t output) const { return output == target_ ? 0 : output < target_ ? output + 1 : output; }
  at::Tensor take(torch::autograd::variable_list& unpacked, size_t saved, size_t output);

  const Operator& op_;
  const Plan* plan_;
  std::vector<torch::autograd::SavedVariable> saved_;  // tensors of arguments, then results
  std::vector<c10::IValue> others_;                    // of the kept arguments those that are no tensors; properties
  Counts counts_;                                      // for each kept argument: how many tensors, or kTensor, kOther
  std::vector<torch::autograd::VariableInfo> shapes_;
  Outputs outputs_;
  size_t target_ = 0;
};

}  // namespace opwheel::autograd
