// One overload of an operator as autograd sees it: its schema, and its derivatives as data.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace opwheel::autograd {

// What formulas ask of a tensor that is no element of it: `x.sym_size(0)`, `x.scalar_type()`.
enum class Property { size, sizes, numel, dim, scalar_type, device, layout };

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
    property,
    negate,
    conjugate,
    add,
    subtract,
    multiply,
    divide
  };

  Kind kind = Kind::constant;
  int index = 0;  // of the gradient, argument or result; of the dimension whose size it is
  Property property = Property::sizes;
  c10::IValue constant;
  std::optional<c10::OperatorHandle> callee;
  std::optional<c10::OperatorHandle> in_place;  // takes the same and overwrites the first, a result, where it may
  std::vector<Expression> parts;  // of the call, one for each argument in its schema; of the list; of the sum
  c10::TypePtr type;              // of its value, where it is one value
};

// The gradients of one or several arguments.
struct Formula {
  std::vector<int> targets;
  std::vector<int> values;  // for each target, which of the formula's values is its gradient
  Expression expression;
};

// Where an argument's gradient comes from: a formula's value, or, where the formula is nothing but `grad`, a gradient
// that arrives.
struct Source {
  static constexpr int kArrives = -1;

  int formula = kArrives;  // of the plan's
  int value = 0;           // of the formula's; of the gradients that arrive
};

// Positions of arguments or results: few, and in place, as is all that a call reads of the structures below. In a
// program that does more than call one operator, each part that lies elsewhere in memory is one more wait for it.
using Positions = c10::SmallVector<int, 4>;

// What to do for one set of needed gradients.
struct Plan {
  uint64_t needed = 0;           // a bit for each argument
  bool without_formula = false;  // some gradient has no formula: all of them come from the reference
  Positions uncovered;  // results whose gradients no formula names: where one of them arrives, all of them come
                        // from the reference
  bool is_inexact_again = false;  // a result without a gradient is kept: differentiating the formulas again would take
                                  // it for a constant, so that second derivatives come from the reference
  Positions arguments;            // to be kept
  Positions results;              // to be kept
  Positions gradients;            // which the formulas name
  // Of arguments, then of results: kept in place of the tensors, which are freed if no formula names them otherwise.
  c10::SmallVector<const Expression*, 2> properties;
  c10::SmallVector<Source, 4> sources;  // for each argument; set for those needed
  c10::SmallVector<const Expression*, 2> formulas;
};

struct Operator {
  explicit Operator(const c10::OperatorHandle& handle);

  const c10::FunctionSchema& schema() const { return handle.schema(); }

  // What to do where the gradients of these arguments are needed: a bit for each.
  const Plan& plan(uint64_t needed) const;
  // The same where a result that is uncovered has a gradient: all arguments are kept for the reference.
  const Plan& uncovered_plan(uint64_t needed) const;

  c10::OperatorHandle handle;
  int argument_count = 0;
  int result_count = 0;
  bool is_in_place = false;  // returns what it has overwritten
  bool is_out = false;       // the same, and it is keyword-only
  bool is_differentiable = true;
  bool is_random = false;
  Positions constants;                         // arguments that are declared to have no gradient
  Positions tensors;                           // arguments that are or contain tensors
  Positions written;                           // arguments that are overwritten
  Positions uncovered;                         // results whose gradients no formula names; integers have none
  c10::SmallVector<bool, 4> without_gradient;  // for each result, whether it is declared to have none

  std::string name;  // without the namespace, as in error messages: "axpby.out"
  std::vector<std::string> result_names;
  std::vector<Formula> formulas;  // those for most arguments first
  std::optional<c10::OperatorHandle> reference;
  std::optional<c10::OperatorHandle> recorded;  // takes the same, and is called where a gradient is recorded

 private:
  using Plans = std::map<uint64_t, std::unique_ptr<const Plan>>;

  const Plan& made(Plans& plans, uint64_t needed, const Positions& uncovered) const;
  Plan make_plan(uint64_t needed, const Positions& uncovered) const;

  mutable std::mutex mutex_;
  mutable Plans plans_;
  mutable Plans uncovered_plans_;
  mutable std::atomic<const Plan*> latest_ = nullptr;  // most calls need what the one before has needed
};

}  // namespace opwheel::autograd
