// One overload of an operator as autograd sees it: its schema, and its derivatives as data.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace opwheel::autograd {

// A part of a formula. Numbers, lists and None are constants.
struct Expression {
  enum class Kind {
    gradient,
    gradients,
    argument,
    result,
    constant,
    list,
    call,
    negate,
    add,
    subtract,
    multiply,
    divide
  };

  Kind kind = Kind::constant;
  int index = 0;  // of the gradient, argument or result
  c10::IValue constant;
  std::optional<c10::OperatorHandle> callee;
  std::vector<Expression> parts;  // of the call, one for each argument in its schema; of the list; of the sum
  c10::TypePtr type;              // of its value, where it is one value
};

// The gradients of one or several arguments.
struct Formula {
  std::vector<int> targets;
  std::vector<int> values;  // for each target, which of the formula's values is its gradient
  Expression expression;
};

// Where an argument's gradient comes from.
struct Source {
  int formula;  // of the plan's
  int value;    // of the formula's
};

// What to do for one set of needed gradients.
struct Plan {
  uint64_t needed = 0;  // a bit for each argument
  std::vector<const Expression*> formulas;
  std::vector<Source> sources;    // for each argument; set for those needed
  std::vector<int> gradients;     // which the formulas name
  std::vector<int> arguments;     // to be kept
  std::vector<int> results;       // to be kept
  bool without_formula = false;   // some gradient has no formula: all of them come from the reference
  bool is_inexact_again = false;  // a result without a gradient is kept: differentiating the formulas again would take
                                  // it for a constant, so that second derivatives come from the reference
};

struct Operator {
  explicit Operator(const c10::OperatorHandle& handle);

  const c10::FunctionSchema& schema() const { return handle.schema(); }

  // What to do where the gradients of these arguments are needed: a bit for each.
  const Plan& plan(uint64_t needed) const;

  c10::OperatorHandle handle;
  std::string name;  // without the namespace, as in error messages: "axpby.out"
  int argument_count = 0;
  int result_count = 0;
  std::vector<int> tensors;  // positions of arguments that are or contain tensors
  std::vector<int> written;  // positions of arguments that are overwritten
  bool is_in_place = false;  // hands back what it has overwritten
  bool is_out = false;       // the same, and it is keyword-only
  std::vector<std::string> result_names;

  bool is_differentiable = true;
  bool is_random = false;
  std::vector<bool> without_gradient;  // for each result, whether it is declared to have none
  std::vector<int> unused;             // results with a gradient that no formula uses
  std::vector<Formula> formulas;       // those for most arguments first
  std::optional<c10::OperatorHandle> reference;

 private:
  Plan make_plan(uint64_t needed) const;

  mutable std::mutex mutex_;
  mutable std::map<uint64_t, std::unique_ptr<const Plan>> plans_;
  mutable std::atomic<const Plan*> latest_ = nullptr;  // most calls need what the one before has needed
};

// The operator from lines of text:
//
//     operator waves::norm
//     reference waves_reference::norm        an operator with the same schema that calls ATen's operators; optional
//     derivative x, weight = norm_backward(grad_y, x, weight, rstd)
//     derivative (x, residual), weight = ... the same value is the gradient of what is in parentheses
//     not_differentiable rstd                names of results
//     no_derivative                          a gradient that arrives is an error
//     random                                 two calls with the same arguments may differ
//
// Throws std::invalid_argument for what it does not understand.
std::unique_ptr<Operator> parse_operator(const std::string& text);

}  // namespace opwheel::autograd
