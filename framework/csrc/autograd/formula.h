// Formulas in the notation of PyTorch's derivatives.yaml: "norm_backward(grad, x, weight, rstd)", "-grads[0] *
// aten::cos(x)".
//
// Calls of the library's own operators by name and of others as namespace::name, the four arithmetic operators,
// numbers, lists, and the names of arguments, results (result, result0) and gradients (grad, grads[0], grad_<result>).
#pragma once

#include <string>
#include <vector>

#include "operator.h"

namespace opwheel::autograd {

// Throws std::invalid_argument, naming what is not understood.
Expression parse_formula(const Operator& op, const std::string& text);

// What formulas are computed from. Undefined gradients are None.
struct Known {
  std::vector<c10::IValue> gradients;
  std::vector<c10::IValue> arguments;
  std::vector<c10::IValue> results;
};

// The values of a formula: one, or as many as its outermost call has results.
std::vector<c10::IValue> evaluate(const Expression& expression, const Known& known);

}  // namespace opwheel::autograd
