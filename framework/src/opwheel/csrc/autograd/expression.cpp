// Makes expressions, and finds the overloads that they call by the types of the arguments.
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
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

bool is_whole_number(const Expression& expression) {
  return expression.type &&
         (expression.type->kind() == c10::TypeKind::IntType || expression.type->kind() == c10::TypeKind::SymIntType);
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

// Whether it can be passed for an argument of the type, and as what. Lenient: also what may turn out to be None, and
// an integer for a floating-point number.
std::optional<Expression> passed(Expression given, const c10::TypePtr& type, bool is_lenient) {
  if (given.kind == Kind::constant) {
    std::optional<c10::IValue> value = converted(given.constant, type);
    if (!value) return std::nullopt;
    return make_constant(std::move(*value));
  }
  if (!given.type) return std::nullopt;  // a call with several results
  if (given.type->isSubtypeOf(*type)) return given;
  // A size of a schema is a SymInt outside and an int inside.
  const auto without_symbols = [](std::string text) {
    for (size_t at = text.find("SymInt"); at != std::string::npos; at = text.find("SymInt")) text.replace(at, 6, "int");
    return text;
  };
  const c10::TypePtr inner = type->kind() == c10::TypeKind::OptionalType ? type->containedType(0) : type;
  if (without_symbols(given.type->str()) == without_symbols(inner->str())) return given;
  if (!is_lenient) return std::nullopt;
  if (is_whole_number(given) && inner->kind() == c10::TypeKind::FloatType) {
    return make_arithmetic(Kind::multiply, std::move(given), make_constant(1.0));
  }
  if (given.type->kind() == c10::TypeKind::OptionalType && given.type->containedType(0)->isSubtypeOf(*type)) {
    return given;
  }
  return std::nullopt;
}

// A call of the overload with that schema, if it takes the arguments.
std::optional<Expression> bound(const c10::FunctionSchema& schema, const std::vector<Expression>& given,
                                const std::vector<std::string>& keywords, bool is_lenient) {
  Expression result;
  result.kind = Kind::call;
  result.callee = c10::Dispatcher::singleton().findSchema({schema.name(), schema.overload_name()});
  if (!result.callee || schema.returns().empty()) return std::nullopt;
  const size_t positional = given.size() - keywords.size();
  size_t used = 0;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.alias_info() && argument.alias_info()->isWrite()) return std::nullopt;
    const auto keyword = std::find(keywords.begin(), keywords.end(), argument.name());
    std::optional<Expression> value;
    if (i < positional && !argument.kwarg_only()) {
      value = passed(given[i], argument.real_type(), is_lenient);
      ++used;
    } else if (keyword != keywords.end()) {
      const auto position = positional + static_cast<size_t>(keyword - keywords.begin());
      value = passed(given[position], argument.real_type(), is_lenient);
      ++used;
    } else if (argument.default_value()) {
      value = make_constant(*argument.default_value());
    }
    if (!value) return std::nullopt;
    result.parts.push_back(std::move(*value));
  }
  if (used != given.size()) return std::nullopt;
  if (schema.returns().size() == 1) result.type = schema.returns()[0].real_type();
  return result;
}

Expression make_unary(Kind kind, Expression operand) {
  Expression result;
  result.kind = kind;
  result.type = operand.type;
  result.parts = {std::move(operand)};
  return result;
}

bool is_kept_kind(Kind kind) { return kind == Kind::argument || kind == Kind::result; }

bool may_be_tensor(const Expression& expression) {
  return expression.type && expression.type->kind() == c10::TypeKind::OptionalType &&
         expression.type->containedType(0)->kind() == c10::TypeKind::TensorType;
}

c10::TypePtr type_of(Property property) {
  switch (property) {
    case Property::sizes:
      return c10::ListType::ofInts();
    case Property::scalar_type:
      return c10::ScalarTypeType::get();
    case Property::device:
      return c10::DeviceObjType::get();
    case Property::layout:
      return c10::LayoutType::get();
    default:
      return c10::IntType::get();
  }
}

}  // namespace

Expression make_constant(c10::IValue value) {
  Expression expression;
  expression.type = value.type();
  expression.constant = std::move(value);
  return expression;
}

Expression make_given(Kind kind, int index, c10::TypePtr type) {
  Expression expression;
  expression.kind = kind;
  expression.index = index;
  expression.type = std::move(type);
  return expression;
}

Expression make_list(std::vector<Expression> parts) {
  const auto all = [&](auto&& of) { return std::all_of(parts.begin(), parts.end(), of); };
  if (all([](const Expression& part) { return part.kind == Kind::constant && part.constant.isInt(); })) {
    std::vector<int64_t> values;
    values.reserve(parts.size());
    for (const Expression& part : parts) values.push_back(part.constant.toInt());
    return make_constant(values);
  }
  if (all([](const Expression& part) { return part.kind == Kind::constant && part.constant.isDouble(); })) {
    std::vector<double> values;
    values.reserve(parts.size());
    for (const Expression& part : parts) values.push_back(part.constant.toDouble());
    return make_constant(values);
  }
  if (!all(is_tensor) && !all(is_whole_number)) throw std::invalid_argument("a list is of numbers or of tensors");
  Expression result;
  result.kind = Kind::list;
  result.type = all(is_tensor) ? c10::ListType::ofTensors() : c10::ListType::ofInts();
  result.parts = std::move(parts);
  return result;
}

Expression make_negative(Expression operand) {
  if (!is_tensor(operand) && !is_number(operand)) {
    throw std::invalid_argument("only tensors and numbers have a negative");
  }
  return make_unary(Kind::negate, std::move(operand));
}

Expression make_conjugate(Expression operand) {
  if (!is_tensor(operand) && !is_number(operand)) {
    throw std::invalid_argument("only tensors and numbers have a conjugate");
  }
  return make_unary(Kind::conjugate, std::move(operand));
}

Expression make_property(Property property, int dimension, Expression operand) {
  if (!is_tensor(operand) && !(is_kept_kind(operand.kind) && may_be_tensor(operand))) {
    throw std::invalid_argument("only a tensor has sizes, a dtype and a device");
  }
  Expression result;
  result.kind = Kind::property;
  result.property = property;
  result.index = dimension;
  result.type = type_of(property);
  result.parts = {std::move(operand)};
  return result;
}

bool is_kept(const Expression& property) { return is_kept_kind(property.parts[0].kind); }

Expression make_arithmetic(Kind kind, Expression left, Expression right) {
  if (!(is_tensor(left) || is_number(left)) || !(is_tensor(right) || is_number(right))) {
    throw std::invalid_argument("only tensors and numbers can be added, multiplied or divided");
  }
  Expression result;
  result.kind = kind;
  const bool are_integers = is_whole_number(left) && is_whole_number(right);
  if (is_tensor(left) || is_tensor(right)) {
    result.type = c10::TensorType::get();
  } else if (are_integers && kind != Kind::divide) {
    result.type = c10::IntType::get();
  } else {
    result.type = c10::FloatType::get();
  }
  result.parts = {std::move(left), std::move(right)};
  return result;
}

Expression make_call(const std::string& name, const std::vector<Expression>& arguments,
                     const std::vector<std::string>& keywords) {
  const auto& candidates = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name));
  if (candidates.empty()) throw std::invalid_argument("there is no operator " + name);
  for (const bool is_lenient : {false, true}) {
    for (const auto& candidate : candidates) {
      std::optional<Expression> found = bound(candidate->schema(), arguments, keywords, is_lenient);
      if (found) return *std::move(found);
    }
  }
  throw std::invalid_argument("no overload of " + name + " takes these arguments");
}

Expression make_call_in_place(Expression call) {
  const c10::FunctionSchema& schema = call.callee->schema();
  const std::string name = schema.name() + "_";
  call.in_place = c10::Dispatcher::singleton().findSchema({name, schema.overload_name()});
  if (!call.in_place) throw std::invalid_argument("there is no operator " + name);
  if (call.parts.empty() || call.parts[0].kind != Kind::result) {
    throw std::invalid_argument("only a result can be overwritten");
  }
  const auto &all = schema.arguments(), &others = call.in_place->schema().arguments();
  bool is_variant =
      all.size() == others.size() && schema.returns().size() == 1 && call.in_place->schema().returns().empty();
  for (size_t i = 0; is_variant && i < all.size(); ++i) {
    const bool is_written = others[i].alias_info() && others[i].alias_info()->isWrite();
    const bool is_same = all[i].name() == others[i].name() && *all[i].real_type() == *others[i].real_type();
    is_variant = is_same && is_written == (i == 0);
  }
  if (!is_variant) throw std::invalid_argument(name + " is not " + schema.name() + " in place");
  return call;
}

}  // namespace opwheel::autograd
