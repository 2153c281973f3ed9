// Computes formulas.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/TensorSubclassLikeUtils.h>

#include "formula.h"
#include "tensors.h"

namespace opwheel::autograd {

namespace {

using Kind = Expression::Kind;

template <class T>
T combined(Kind kind, const T& left, const T& right) {
  switch (kind) {
    case Kind::add:
      return left + right;
    case Kind::subtract:
      return left - right;
    case Kind::multiply:
      return left * right;
    default:
      return left / right;
  }
}

bool is_integer(const c10::IValue& value) { return value.isInt() || value.isSymInt() || value.isBool(); }

c10::SymInt as_sym_int(const c10::IValue& value) {
  return value.isBool() ? c10::SymInt(int64_t{value.toBool()}) : value.toSymInt();
}

c10::SymFloat as_sym_float(const c10::IValue& value) {
  return is_integer(value) ? c10::SymFloat(as_sym_int(value)) : value.toSymFloat();
}

c10::complex<double> as_complex(const c10::IValue& value) {
  return value.isComplexDouble() ? value.toComplexDouble() : as_sym_float(value).guard_float(__FILE__, __LINE__);
}

c10::IValue simplified(const c10::SymFloat& value) {
  return value.is_symbolic() ? c10::IValue(value) : c10::IValue(value.as_float_unchecked());
}

// Tensors and numbers, as in Python: integers stay integers but in a division, and True is 1.
c10::IValue arithmetic(Kind kind, const c10::IValue& left, const c10::IValue& right) {
  if (left.isTensor() && right.isTensor()) return combined(kind, left.toTensor(), right.toTensor());
  if (left.isTensor()) {
    const at::Tensor& tensor = left.toTensor();
    const at::Scalar number = right.toScalar();
    switch (kind) {
      case Kind::add:
        return tensor + number;
      case Kind::subtract:
        return tensor - number;
      case Kind::multiply:
        return tensor * number;
      default:
        return tensor / number;
    }
  }
  if (right.isTensor()) {
    const at::Scalar number = left.toScalar();
    const at::Tensor& tensor = right.toTensor();
    switch (kind) {
      case Kind::add:
        return number + tensor;
      case Kind::subtract:
        return number - tensor;
      case Kind::multiply:
        return number * tensor;
      default:
        return number / tensor;
    }
  }
  if (left.isComplexDouble() || right.isComplexDouble()) return combined(kind, as_complex(left), as_complex(right));
  if (is_integer(left) && is_integer(right) && kind != Kind::divide) {
    return combined(kind, as_sym_int(left), as_sym_int(right));
  }
  return simplified(combined(kind, as_sym_float(left), as_sym_float(right)));
}

c10::IValue negated(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().neg();
  if (value.isComplexDouble()) return -value.toComplexDouble();
  if (is_integer(value)) return -as_sym_int(value);
  return simplified(c10::SymFloat(-1.0) * as_sym_float(value));  // not 0 - value, which is 0 where this is -0
}

c10::IValue conjugate(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().conj();
  return value.isComplexDouble() ? c10::IValue(std::conj(value.toComplexDouble())) : value;
}

c10::IValue evaluate(const Expression& expression, const Known& known);

c10::IValue evaluate_list(const Expression& list, const Known& known) {
  if (list.type->containedType(0)->kind() == c10::TypeKind::TensorType) {
    c10::List<at::Tensor> tensors;
    for (const Expression& part : list.parts) tensors.push_back(evaluate(part, known).toTensor());
    return tensors;
  }
  std::vector<c10::SymInt> numbers;
  numbers.reserve(list.parts.size());
  for (const Expression& part : list.parts) numbers.push_back(as_sym_int(evaluate(part, known)));
  return numbers;
}

std::vector<c10::IValue> called(const c10::OperatorHandle& callee, std::vector<c10::IValue> stack) {
  // A notebook may have defined it again since the graph was recorded; a boxed call looks at no argument's number.
  TORCH_CHECK(stack.size() == callee.schema().arguments().size(), callee.schema().name(),
              " was defined again with another schema, and a gradient's formula calls it with the arguments of before; "
              "run the forward pass again");
  callee.callBoxed(&stack);
  return stack;
}

std::vector<c10::IValue> evaluate_call(const Expression& call, const Known& known) {
  std::vector<c10::IValue> stack;
  stack.reserve(call.parts.size());
  for (const Expression& part : call.parts) stack.push_back(evaluate(part, known));
  return called(*call.callee, std::move(stack));
}

c10::IValue evaluate(const Expression& expression, const Known& known) {
  switch (expression.kind) {
    case Kind::gradient:
      return known.gradients[expression.index];
    case Kind::gradients: {
      c10::List<at::Tensor> all;
      for (const at::Tensor& gradient : known.gradients) all.push_back(gradient);
      return all;
    }
    case Kind::argument:
      return known.argument(expression.index);
    case Kind::result:
      return known.result(expression.index);
    case Kind::constant:
      return expression.constant;
    case Kind::list:
      return evaluate_list(expression, known);
    case Kind::call:
      return evaluate_call(expression, known)[0];
    case Kind::property:
      if (is_kept(expression)) return known.property(expression);
      return property_of(expression, evaluate(expression.parts[0], known));
    case Kind::conjugate:
      return conjugate(evaluate(expression.parts[0], known));
    case Kind::negate:
      return negated(evaluate(expression.parts[0], known));
    default:
      return arithmetic(expression.kind, evaluate(expression.parts[0], known), evaluate(expression.parts[1], known));
  }
}

}  // namespace

c10::IValue property_of(const Expression& property, const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return {};
  const at::Tensor& tensor = value.toTensor();
  switch (property.property) {
    case Property::size:
      return tensor.sym_size(property.index);
    case Property::sizes:
      return tensor.sym_sizes();
    case Property::numel:
      return tensor.sym_numel();
    case Property::dim:
      return tensor.dim();
    case Property::scalar_type:
      return tensor.scalar_type();
    case Property::device:
      return tensor.device();
    case Property::layout:
      return tensor.layout();
  }
  return {};
}

std::vector<c10::IValue> evaluate_all(const Expression& formula, const Known& known) {
  if (formula.kind == Kind::call) return evaluate_call(formula, known);
  std::vector<c10::IValue> values;
  values.reserve(1);
  values.push_back(evaluate(formula, known));
  return values;
}

std::vector<c10::IValue> evaluate_in_place(const Expression& call, const Known& known,
                                           c10::function_ref<at::Tensor()> take) {
  std::vector<c10::IValue> stack(1);
  stack.reserve(call.parts.size());
  for (size_t i = 1; i < call.parts.size(); ++i) stack.push_back(evaluate(call.parts[i], known));
  bool are_plain = true;  // what transforms compute may have no room in it, and subclasses may keep what they see
  for (const c10::IValue& value : stack) {
    for_each_tensor(value, [&](const at::Tensor& tensor, int) { are_plain &= !at::isTensorSubclassLike(tensor); });
  }
  at::Tensor taken = are_plain ? take() : at::Tensor();
  stack[0] = taken.defined() ? c10::IValue(taken) : evaluate(call.parts[0], known);
  if (!taken.defined()) return called(*call.callee, std::move(stack));
  called(*call.in_place, std::move(stack));
  return {std::move(taken)};
}

}  // namespace opwheel::autograd
