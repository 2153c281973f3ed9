// The operator in ATen operators, which PyTorch differentiates itself: an operator of its own, mostly in Python.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include "operator.h"

namespace opwheel::autograd {

// Whether a torch.func transform is active.
bool transform_is_active();

// Replaces the arguments on the stack by the results. Throws where there is no reference, as without Python.
void call_reference(const Operator& op, std::vector<c10::IValue>& stack);

// Vector-Jacobian products of the reference. With grad mode on they can be differentiated again.
//
// arguments: of the operator. needed: for each tensor among them, whether its gradient is needed. gradients: of the
// results; undefined is zero. The result is a gradient, or none, for each tensor.
torch::autograd::variable_list gradients_through_reference(const Operator& op, at::ArrayRef<c10::IValue> arguments,
                                                           const std::vector<bool>& needed,
                                                           const torch::autograd::variable_list& gradients);

}  // namespace opwheel::autograd
