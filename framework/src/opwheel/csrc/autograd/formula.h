// Formulas: made from their parts, and computed.
#pragma once

#include <c10/util/FunctionRef.h>

#include <string>
#include <vector>

#include "operator.h"

namespace opwheel::autograd {

// Expressions of a kind. They throw std::invalid_argument for parts that the kind cannot have.

Expression make_constant(c10::IValue value);
// A gradient that arrives, an argument or a result, by position.
Expression make_given(Expression::Kind kind, int index, c10::TypePtr type);
Expression make_list(std::vector<Expression> parts);
Expression make_negative(Expression operand);
Expression make_conjugate(Expression operand);
// Of a tensor; dimension: where it is the size of one.
Expression make_property(Property property, int dimension, Expression operand);
Expression make_arithmetic(Expression::Kind kind, Expression left, Expression right);
// Of the operator's overloads the first that takes the arguments: those by position, then one for each keyword.
Expression make_call(const std::string& name, const std::vector<Expression>& arguments,
                     const std::vector<std::string>& keywords);
// The call, which may overwrite its first argument, a result, by the operator of that name with an underscore.
Expression make_call_in_place(Expression call);

// What formulas are computed from, by position in the schema.
struct Known {
  at::ArrayRef<at::Tensor> gradients;
  c10::function_ref<c10::IValue(int)> argument;
  c10::function_ref<c10::IValue(int)> result;
  c10::function_ref<c10::IValue(const Expression&)> property;  // of those that are kept
};

// Whether the property is one of an argument or a result: it is found out in the forward pass, and kept.
bool is_kept(const Expression& property);
// None of a tensor that is not there.
c10::IValue property_of(const Expression& property, const c10::IValue& value);

// The values of a formula: several of a call with several results, else one.
std::vector<c10::IValue> evaluate_all(const Expression& formula, const Known& known);
// The same of a call in place. take: gives the result that it may overwrite; undefined where it must not.
std::vector<c10::IValue> evaluate_in_place(const Expression& call, const Known& known,
                                           c10::function_ref<at::Tensor()> take);

}  // namespace opwheel::autograd
