// Reads formulas, and finds the overloads that they call by the types of the arguments.
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "formula.h"

namespace opwheel::autograd {

namespace {

using Kind = Expression::Kind;

bool is_tensor(const Expression& expression) {
  return expression.type && expression.type->kind() == c10::TypeKind::TensorType;
}

bool is_number(const Expression& expression) {
  if (!expression.type) return false;
  switch (expression.type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::NumberType:
      return true;
    default:
      return false;
  }
}

Expression constant(c10::IValue value) {
  Expression expression;
  expression.type = value.type();
  expression.constant = std::move(value);
  return expression;
}

// A constant as an argument of the type: an integer where a float or a list of integers is expected, and so on.
std::optional<c10::IValue> converted(const c10::IValue& value, const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      if (value.isNone()) return value;
      return converted(value, type->containedType(0));
    case c10::TypeKind::FloatType:
      if (value.isInt()) return c10::IValue(static_cast<double>(value.toInt()));
      if (value.isDouble()) return value;
      return std::nullopt;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      if (value.isInt()) return value;
      return std::nullopt;
    case c10::TypeKind::NumberType:
      if (value.isInt() || value.isDouble()) return value;
      return std::nullopt;
    case c10::TypeKind::BoolType:
      if (value.isBool()) return value;
      return std::nullopt;
    case c10::TypeKind::StringType:
      if (value.isString()) return value;
      return std::nullopt;
    case c10::TypeKind::ListType: {
      const c10::TypePtr element = type->containedType(0);
      if (value.isInt() &&
          (element->kind() == c10::TypeKind::IntType || element->kind() == c10::TypeKind::SymIntType)) {
        return c10::IValue(std::vector<int64_t>{value.toInt()});
      }
      if (value.isIntList() && element->kind() != c10::TypeKind::FloatType) return value;
      if (value.isDoubleList() && element->kind() == c10::TypeKind::FloatType) return value;
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

// Whether it can be passed for an argument of the type, and as what.
std::optional<Expression> passed(Expression given, const c10::TypePtr& type) {
  if (given.kind == Kind::constant) {
    std::optional<c10::IValue> value = converted(given.constant, type);
    if (!value) return std::nullopt;
    return constant(std::move(*value));
  }
  if (!given.type || given.type->isSubtypeOf(*type)) return given;
  // A size of a schema is a SymInt outside and an int inside.
  const auto without_symbols = [](std::string text) {
    for (size_t at = text.find("SymInt"); at != std::string::npos; at = text.find("SymInt")) text.replace(at, 6, "int");
    return text;
  };
  const c10::TypePtr inner = type->kind() == c10::TypeKind::OptionalType ? type->containedType(0) : type;
  if (without_symbols(given.type->str()) == without_symbols(inner->str())) return given;
  return std::nullopt;
}

class Parser {
 public:
  Parser(const Operator& op, const std::string& text) : op_(op), text_(text) {}

  Expression parse() {
    Expression result = sum();
    if (skip_space() != text_.size()) fail("there is more after its end");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw std::invalid_argument(op_.name + ": the formula '" + text_ + "' is not understood: " + problem);
  }

  size_t skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_;
  }

  bool take(char wanted) {
    if (skip_space() == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail(std::string("'") + wanted + "' is expected at '" + text_.substr(at_) + "'");
  }

  Expression combined(Kind kind, Expression left, Expression right) {
    if (!(is_tensor(left) || is_number(left)) || !(is_tensor(right) || is_number(right))) {
      fail("only tensors and numbers can be added, multiplied or divided");
    }
    Expression result;
    result.kind = kind;
    const bool is_integer = left.type->kind() == c10::TypeKind::IntType && right.type->kind() == c10::TypeKind::IntType;
    if (is_tensor(left) || is_tensor(right)) {
      result.type = c10::TensorType::get();
    } else if (is_integer && kind != Kind::divide) {
      result.type = c10::IntType::get();
    } else {
      result.type = c10::FloatType::get();
    }
    result.parts = {std::move(left), std::move(right)};
    return result;
  }

  Expression sum() {
    Expression left = product();
    while (true) {
      if (take('+')) {
        left = combined(Kind::add, std::move(left), product());
      } else if (take('-')) {
        left = combined(Kind::subtract, std::move(left), product());
      } else {
        return left;
      }
    }
  }

  Expression product() {
    Expression left = factor();
    while (true) {
      if (take('*')) {
        left = combined(Kind::multiply, std::move(left), factor());
      } else if (take('/')) {
        left = combined(Kind::divide, std::move(left), factor());
      } else {
        return left;
      }
    }
  }

  Expression factor() {
    if (take('-')) {
      Expression operand = factor();
      if (operand.kind == Kind::constant && operand.constant.isInt()) return constant(-operand.constant.toInt());
      if (operand.kind == Kind::constant && operand.constant.isDouble()) return constant(-operand.constant.toDouble());
      if (!is_tensor(operand) && !is_number(operand)) fail("only tensors and numbers have a negative");
      Expression result;
      result.kind = Kind::negate;
      result.type = operand.type;
      result.parts = {std::move(operand)};
      return result;
    }
    if (take('(')) {
      Expression result = sum();
      expect(')');
      return result;
    }
    if (take('[')) return list();
    skip_space();
    if (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.'))
      return number();
    if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) return string();
    return name_or_call();
  }

  Expression number() {
    size_t length = 0;
    const double value = std::stod(text_.substr(at_), &length);
    const std::string digits = text_.substr(at_, length);
    at_ += length;
    if (digits.find_first_not_of("0123456789") == std::string::npos) return constant(int64_t{std::stoll(digits)});
    return constant(value);
  }

  Expression string() {
    const char quote = text_[at_];
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string::npos) fail("a string without an end");
    Expression result = constant(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }

  Expression list() {
    std::vector<Expression> parts;
    while (!take(']')) {
      parts.push_back(sum());
      if (!take(',')) {
        expect(']');
        break;
      }
    }
    const auto all = [&](auto&& of) { return std::all_of(parts.begin(), parts.end(), of); };
    if (all([](const Expression& e) { return e.kind == Kind::constant && e.constant.isInt(); })) {
      std::vector<int64_t> values;
      for (const Expression& part : parts) values.push_back(part.constant.toInt());
      return constant(values);
    }
    if (all([](const Expression& e) { return e.kind == Kind::constant && e.constant.isDouble(); })) {
      std::vector<double> values;
      for (const Expression& part : parts) values.push_back(part.constant.toDouble());
      return constant(values);
    }
    if (!all(is_tensor)) fail("a list is of numbers or of tensors");
    Expression result;
    result.kind = Kind::list;
    result.type = c10::ListType::ofTensors();
    result.parts = std::move(parts);
    return result;
  }

  std::string word() {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    if (at_ == begin) fail("a name is expected at '" + text_.substr(begin) + "'");
    return text_.substr(begin, at_ - begin);
  }

  Expression name_or_call() {
    const std::string name = word();
    if (text_.compare(at_, 2, "::") == 0) {
      at_ += 2;
      return call(name + "::" + word());
    }
    skip_space();
    if (at_ < text_.size() && text_[at_] == '(') {
      const std::string& qualified = op_.schema().name();
      return call(qualified.substr(0, qualified.find("::") + 2) + name);
    }
    return named(name);
  }

  // Of the name the one meaning that it has: an argument, a result, gradients that arrive, a constant.
  Expression named(std::string name) {
    const std::string own_name = name;  // an argument called grads may be meant by grads[0]
    if (name == "grads" && take('[')) {
      name += "[" + word() + "]";
      expect(']');
    }
    std::vector<Expression> meanings;
    std::string words;
    const auto add = [&](Expression meaning, const std::string& what) {
      meanings.push_back(std::move(meaning));
      words += (words.empty() ? "" : " and ") + what;
    };
    const auto value = [](Kind kind, int index, c10::TypePtr type) {
      Expression result;
      result.kind = kind;
      result.index = index;
      result.type = std::move(type);
      return result;
    };
    for (int i = 0; i < op_.result_count; ++i) {
      const std::string number = std::to_string(i);
      if (name == "grads[" + number + "]" || name == "grad_" + op_.result_names[i] || name == "grad_" + number ||
          (i == 0 && name == "grad")) {
        add(value(Kind::gradient, i, c10::TensorType::get()), "the incoming gradient");
      }
      if (own_name == op_.result_names[i]) add(value(Kind::result, i, c10::TensorType::get()), "a result");
    }
    if (name == "grads") add(value(Kind::gradients, 0, c10::ListType::ofTensors()), "the incoming gradients");
    if (name == "None") add(constant({}), "a constant");
    if (name == "true" || name == "True") add(constant(true), "a constant");
    if (name == "false" || name == "False") add(constant(false), "a constant");
    const auto& arguments = op_.schema().arguments();
    for (int i = 0; i < op_.argument_count; ++i) {
      if (own_name == arguments[i].name()) add(value(Kind::argument, i, arguments[i].real_type()), "an argument");
    }
    if (meanings.empty()) fail("there is no '" + name + "'");
    if (meanings.size() > 1) fail("'" + name + "' is " + words + "; rename one in the schema, or use another name");
    return meanings[0];
  }

  Expression call(const std::string& name) {
    expect('(');
    std::vector<Expression> given;
    std::vector<std::pair<std::string, Expression>> keywords;
    while (!take(')')) {
      const size_t begin = at_;
      skip_space();
      std::string keyword;
      if (at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
        keyword = word();
      }
      if (!keyword.empty() && take('=')) {
        keywords.emplace_back(keyword, sum());
      } else {
        at_ = begin;
        if (!keywords.empty()) fail("a positional argument after a keyword");
        given.push_back(sum());
      }
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    const auto& candidates = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name));
    if (candidates.empty()) fail("there is no operator " + name);
    for (const auto& candidate : candidates) {
      std::optional<Expression> found = bound(candidate->schema(), given, keywords);
      if (found) return *found;
    }
    fail("no overload of " + name + " takes these arguments");
  }

  std::optional<Expression> bound(const c10::FunctionSchema& schema, const std::vector<Expression>& given,
                                  const std::vector<std::pair<std::string, Expression>>& keywords) const {
    Expression result;
    result.kind = Kind::call;
    result.callee = c10::Dispatcher::singleton().findSchema({schema.name(), schema.overload_name()});
    if (!result.callee || given.size() > schema.arguments().size()) return std::nullopt;
    size_t used = 0;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      if (argument.alias_info() && argument.alias_info()->isWrite()) return std::nullopt;
      const auto keyword =
          std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == argument.name(); });
      std::optional<Expression> value;
      if (i < given.size() && !argument.kwarg_only()) {
        value = passed(given[i], argument.real_type());
      } else if (keyword != keywords.end()) {
        value = passed(keyword->second, argument.real_type());
        ++used;
      } else if (argument.default_value()) {
        value = constant(*argument.default_value());
      }
      if (!value) return std::nullopt;
      result.parts.push_back(std::move(*value));
    }
    if (used != keywords.size() || schema.returns().empty()) return std::nullopt;
    if (schema.returns().size() == 1) result.type = schema.returns()[0].real_type();
    return result;
  }

  const Operator& op_;
  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

Expression parse_formula(const Operator& op, const std::string& text) { return Parser(op, text).parse(); }

}  // namespace opwheel::autograd
