// Formulas in the notation of PyTorch's derivatives.yaml: "norm_backward(grad, x, weight, rstd)", "-grads[0] *
// aten::cos(x)".
//
// Calls of the library's own operators by name and of others as namespace::name, the four arithmetic operators,
// numbers, lists, and the names of arguments, results (result, result0) and gradients (grad, grads[0], grad_<result>).
// A name with two meanings is an error.
#pragma once

#include <c10/util/FunctionRef.h>

#include <string>
#include <vector>

#include "operator.h"

namespace opwheel::autograd {

// Throws std::invalid_argument, naming what is not understood.
Expression parse_formula(const Operator& op, const std::string& text);

// What formulas are computed from, by position in the schema.
struct Known {
  at::ArrayRef<at::Tensor> gradients;
  c10::function_ref<c10::IValue(int)> argument;
  c10::function_ref<c10::IValue(int)> result;
};

// The values of a formula: several of a call with several results, else one.
std::vector<c10::IValue> evaluate_all(const Expression& formula, const Known& known);

}  // namespace opwheel::autograd
