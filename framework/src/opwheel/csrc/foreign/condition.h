// A condition on the arguments of a call, as foreign/condition.py writes it: an expression in prefix notation, in which
// every value is a number. Python evaluates the same expression in its own way; tests compare the two.
#pragma once

#include <ATen/core/grad_mode.h>

#include <array>
#include <istream>
#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "argument.h"

namespace opwheel::foreign {

class Condition {
 public:
  // Throws std::invalid_argument: it is not in the notation, or nested too deeply.
  static Condition read(std::istream& text) {
    Condition read;
    read.append(text, 1);
    return read;
  }

  // False where it asks for what an argument does not have.
  bool holds(const Argument* arguments) const {
    std::array<double, deepest + 1> values;  // the first is none
    double* top = values.data();
    const Step* const end = steps_.data() + steps_.size();
    for (const Step* next = steps_.data(); next != end;) {
      const Step& step = *next++;
      switch (step.operation) {
        case Operation::number:
          *++top = step.number;
          break;
        case Operation::is_none:
          *++top = std::holds_alternative<None>(arguments[step.argument]);
          break;
        case Operation::grad_mode:
          *++top = c10::GradMode::is_enabled();
          break;
        case Operation::both:  // asked between its sides
          if (*top == 0)
            next += step.skipped;
          else
            --top;
          break;
        case Operation::either:
          if (*top != 0)
            next += step.skipped;
          else
            --top;
          break;
        case Operation::negation:
          *top = *top == 0;
          break;
        case Operation::sum:
          --top;
          *top += top[1];
          break;
        case Operation::product:
          --top;
          *top *= top[1];
          break;
        case Operation::equal:
          --top;
          *top = *top == top[1];
          break;
        case Operation::less:
          --top;
          *top = *top < top[1];
          break;
        case Operation::less_or_equal:
          --top;
          *top = *top <= top[1];
          break;
        case Operation::scalar:
          if (!of_number(arguments[step.argument], *++top)) return false;
          break;
        case Operation::length:
        case Operation::item:
          if (!of_list(step, arguments[step.argument], *++top)) return false;
          break;
        default:
          if (!of_tensor(step, arguments[step.argument], *++top)) return false;
      }
    }
    return *top != 0;
  }

 private:
  enum class Operation {
    number,
    is_none,
    grad_mode,
    both,
    either,
    negation,
    sum,
    product,
    equal,
    less,
    less_or_equal,
    scalar,
    length,
    item,
    dtype,
    dim,
    numel,
    size,
    stride,
    contiguous,
    requires_grad,
  };
  struct Kind {
    Operation operation;
    bool has_argument;
    bool has_index;
    int parts;
  };
  struct Step {
    Operation operation;
    double number = 0;
    size_t argument = 0;
    int64_t index = 0;
    size_t skipped = 0;  // steps of the other side
  };
  static constexpr size_t deepest = 16;

  static const std::map<std::string, Kind>& kinds() {
    static const std::map<std::string, Kind> all{
        {"number", {Operation::number, false, false, 0}},
        {"none", {Operation::is_none, true, false, 0}},
        {"grad_mode", {Operation::grad_mode, false, false, 0}},
        {"and", {Operation::both, false, false, 2}},
        {"or", {Operation::either, false, false, 2}},
        {"not", {Operation::negation, false, false, 1}},
        {"+", {Operation::sum, false, false, 2}},
        {"*", {Operation::product, false, false, 2}},
        {"==", {Operation::equal, false, false, 2}},
        {"<", {Operation::less, false, false, 2}},
        {"<=", {Operation::less_or_equal, false, false, 2}},
        {"scalar", {Operation::scalar, true, false, 0}},
        {"len", {Operation::length, true, false, 0}},
        {"item", {Operation::item, true, true, 0}},
        {"dtype", {Operation::dtype, true, false, 0}},
        {"dim", {Operation::dim, true, false, 0}},
        {"numel", {Operation::numel, true, false, 0}},
        {"size", {Operation::size, true, true, 0}},
        {"stride", {Operation::stride, true, true, 0}},
        {"contiguous", {Operation::contiguous, true, false, 0}},
        {"requires_grad", {Operation::requires_grad, true, false, 0}},
    };
    return all;
  }

  // The steps of the next expression: those of its sides, then its own. `depth` values are there after it.
  void append(std::istream& text, size_t depth) {
    std::string word;
    text >> word;
    const auto found = kinds().find(word);
    if (found == kinds().end()) throw std::invalid_argument("a condition has '" + word + "'");
    if (depth > deepest) throw std::invalid_argument("a condition is nested too deeply");
    const Kind& kind = found->second;
    Step step{kind.operation};
    if (kind.operation == Operation::number) text >> step.number;
    if (kind.has_argument) text >> step.argument;
    if (kind.has_index) text >> step.index;
    const bool is_asked_between = kind.operation == Operation::both || kind.operation == Operation::either;
    if (kind.parts > 0) append(text, depth);
    const size_t between = steps_.size();
    if (is_asked_between) steps_.push_back(step);
    if (kind.parts > 1) append(text, is_asked_between ? depth : depth + 1);
    if (is_asked_between)
      steps_[between].skipped = steps_.size() - 1 - between;
    else
      steps_.push_back(step);
  }

  // These say whether there is such a value.
  static bool of_number(const Argument& argument, double& value) {
    const auto* number = std::get_if<double>(&argument);
    if (number == nullptr) return false;
    value = *number;
    return true;
  }

  static bool of_list(const Step& step, const Argument& argument, double& value) {
    if (const auto* numbers = std::get_if<c10::IntArrayRef>(&argument)) return of_numbers(step, *numbers, value);
    if (const auto* boxes = std::get_if<c10::ArrayRef<c10::IValue>>(&argument)) return of_numbers(step, *boxes, value);
    return false;
  }

  static bool of_element(int64_t element, double& value) {
    value = static_cast<double>(element);
    return true;
  }
  static bool of_element(const c10::IValue& element, double& value) { return of_element(element.toInt(), value); }

  template <class List>
  static bool of_numbers(const Step& step, const List& list, double& value) {
    const auto length = static_cast<int64_t>(list.size());
    if (step.operation == Operation::length) {
      value = static_cast<double>(length);
      return true;
    }
    const int64_t at = step.index < 0 ? step.index + length : step.index;
    return at >= 0 && at < length && of_element(list[static_cast<size_t>(at)], value);
  }

  static bool of_tensor(const Step& step, const Argument& argument, double& value) {
    const auto* found = std::get_if<const at::Tensor*>(&argument);
    if (found == nullptr) return false;
    const at::Tensor& tensor = **found;
    switch (step.operation) {
      case Operation::dtype:
        value = static_cast<double>(tensor.scalar_type());
        return true;
      case Operation::dim:
        value = static_cast<double>(tensor.dim());
        return true;
      case Operation::numel:
        value = static_cast<double>(tensor.numel());
        return true;
      case Operation::contiguous:
        value = tensor.is_contiguous();
        return true;
      case Operation::requires_grad:
        value = tensor.requires_grad();
        return true;
      case Operation::size:
        return of_numbers(step, tensor.sizes(), value);
      default:
        return of_numbers(step, tensor.strides(), value);
    }
  }

  std::vector<Step> steps_;
};

}  // namespace opwheel::foreign
