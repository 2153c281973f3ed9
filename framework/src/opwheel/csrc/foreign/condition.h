// A condition on the arguments of a call, as foreign/condition.py writes it: an expression in prefix notation, in which
// every value is a number. Python evaluates the same expression in its own way; tests compare the two.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>

#include <istream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace opwheel::foreign {

class Expression {
 public:
  // Throws std::invalid_argument: it is not in the notation.
  static Expression read(std::istream& text) {
    std::string word;
    text >> word;
    const auto found = kinds().find(word);
    if (found == kinds().end()) throw std::invalid_argument("a condition has '" + word + "'");
    const Kind& kind = found->second;
    Expression read;
    read.operation_ = kind.operation;
    if (kind.operation == Operation::number) text >> read.number_;
    if (kind.has_argument) text >> read.argument_;
    if (kind.has_index) text >> read.index_;
    for (int i = 0; i < kind.parts; ++i) read.parts_.push_back(Expression::read(text));
    return read;
  }

  // Sets is_known to false where it asks for what an argument does not have.
  double value(const c10::IValue* arguments, bool& is_known) const {
    const auto part = [&](size_t i) { return parts_[i].value(arguments, is_known); };
    switch (operation_) {
      case Operation::number:
        return number_;
      case Operation::is_none:
        return is_none(arguments[argument_]);
      case Operation::grad_mode:
        return c10::GradMode::is_enabled();
      case Operation::both:
        return part(0) != 0 && part(1) != 0;
      case Operation::either:
        return part(0) != 0 || part(1) != 0;
      case Operation::negation:
        return part(0) == 0;
      case Operation::sum:
        return part(0) + part(1);
      case Operation::product:
        return part(0) * part(1);
      case Operation::equal:
        return part(0) == part(1);
      case Operation::less:
        return part(0) < part(1);
      case Operation::less_or_equal:
        return part(0) <= part(1);
      case Operation::scalar:
      case Operation::length:
      case Operation::item:
        return of_scalar(arguments[argument_], is_known);
      default:
        return of_tensor(arguments[argument_], is_known);
    }
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

  static bool is_none(const c10::IValue& value) {
    return value.isNone() || (value.isTensor() && !value.toTensor().defined());
  }

  static double unknown(bool& is_known) {
    is_known = false;
    return 0;
  }

  double of_scalar(const c10::IValue& value, bool& is_known) const {
    if (operation_ == Operation::scalar) {
      if (value.isInt()) return static_cast<double>(value.toInt());
      if (value.isDouble()) return value.toDouble();
      if (value.isBool()) return value.toBool();
      return unknown(is_known);
    }
    if (!value.isIntList()) return unknown(is_known);  // numbers that are symbols are another type
    const c10::List<int64_t> list = value.toIntList();
    if (operation_ == Operation::length) return static_cast<double>(list.size());
    const int64_t at = index_ < 0 ? index_ + static_cast<int64_t>(list.size()) : index_;
    if (at < 0 || at >= static_cast<int64_t>(list.size())) return unknown(is_known);
    return static_cast<double>(list.get(static_cast<size_t>(at)));
  }

  double of_tensor(const c10::IValue& value, bool& is_known) const {
    if (!value.isTensor() || !value.toTensor().defined()) return unknown(is_known);
    const at::Tensor& tensor = value.toTensor();
    const int64_t at = index_ < 0 ? index_ + tensor.dim() : index_;
    switch (operation_) {
      case Operation::dtype:
        return static_cast<double>(tensor.scalar_type());
      case Operation::dim:
        return static_cast<double>(tensor.dim());
      case Operation::numel:
        return static_cast<double>(tensor.numel());
      case Operation::contiguous:
        return tensor.is_contiguous();
      case Operation::requires_grad:
        return tensor.requires_grad();
      default:
        if (at < 0 || at >= tensor.dim()) return unknown(is_known);
        return static_cast<double>(operation_ == Operation::size ? tensor.sizes()[static_cast<size_t>(at)]
                                                                 : tensor.strides()[static_cast<size_t>(at)]);
    }
  }

  Operation operation_ = Operation::number;
  double number_ = 0;
  size_t argument_ = 0;
  int64_t index_ = 0;
  std::vector<Expression> parts_;
};

}  // namespace opwheel::foreign
