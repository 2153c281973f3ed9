// Reads the description of an operator's derivatives.
#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "formula.h"

namespace opwheel::autograd {

namespace {

c10::OperatorHandle find(const std::string& name) {
  const size_t dot = name.find('.');
  const auto found = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (!found) throw std::invalid_argument("there is no operator " + name);
  return *found;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(trimmed(name));
  return names;
}

int position_of_tensor(const Operator& op, const std::string& name) {
  for (int i : op.tensors) {
    const c10::Argument& argument = op.schema().arguments()[i];
    const bool is_written = argument.alias_info() && argument.alias_info()->isWrite();
    if (argument.name() == name && (op.is_in_place || !is_written)) return i;
  }
  throw std::invalid_argument(op.name + ": a derivative of '" + name + "', which is no tensor among its arguments");
}

// Sets whom a formula's values are for: "x, weight", or "(x, residual), weight" where the first value is for two.
void set_targets(Formula& formula, const Operator& op, const std::string& text) {
  bool is_shared = false;
  int value = -1;
  for (std::string name : names_in(text)) {
    if (!is_shared) ++value;
    const bool begins = !name.empty() && name.front() == '(', ends = !name.empty() && name.back() == ')';
    if ((begins && is_shared) || (ends && !begins && !is_shared)) throw std::invalid_argument("unmatched parentheses");
    is_shared = (is_shared || begins) && !ends;
    if (ends) name.pop_back();
    formula.targets.push_back(position_of_tensor(op, trimmed(begins ? name.substr(1) : name)));
    formula.values.push_back(value);
  }
  if (is_shared) throw std::invalid_argument("unmatched parentheses");
}

int position_of_result(const Operator& op, const std::string& name) {
  const auto found = std::find(op.result_names.begin(), op.result_names.end(), name);
  if (found == op.result_names.end()) throw std::invalid_argument(op.name + ": it has no result '" + name + "'");
  return static_cast<int>(found - op.result_names.begin());
}

void check_values(const Operator& op, const Formula& formula) {
  const Expression& value = formula.expression;
  const bool is_call = value.kind == Expression::Kind::call;
  const size_t count = is_call ? value.callee->schema().returns().size() : 1;
  const size_t needed = static_cast<size_t>(formula.values.back()) + 1;
  if (count != needed) {
    throw std::invalid_argument(op.name + ": a derivative has " + std::to_string(count) +
                                " values, its arguments take " + std::to_string(needed));
  }
}

// The reference would draw again: what was drawn must be a result that the formulas name. With neither, backward fails.
void check_random(const Operator& op) {
  if (!op.is_random || !op.is_differentiable || (op.formulas.empty() && !op.reference)) return;
  const auto names_result = [](const auto& self, const Expression& expression) -> bool {
    return expression.kind == Expression::Kind::result ||
           std::any_of(expression.parts.begin(), expression.parts.end(),
                       [&](const auto& part) { return self(self, part); });
  };
  const bool any = std::any_of(op.formulas.begin(), op.formulas.end(),
                               [&](const Formula& formula) { return names_result(names_result, formula.expression); });
  if (!any) throw std::invalid_argument(op.name + ": a random operator whose derivatives name no result");
  if (!op.reference) return;  // without Python formulas that are functions are missing
  for (int i : op.tensors) {
    const bool is_written = std::find(op.written.begin(), op.written.end(), i) != op.written.end();
    const bool has_formula = std::any_of(op.formulas.begin(), op.formulas.end(), [&](const Formula& formula) {
      return std::find(formula.targets.begin(), formula.targets.end(), i) != formula.targets.end();
    });
    if (!is_written && !has_formula) {
      throw std::invalid_argument(op.name + ": a random operator with no formula for '" +
                                  op.schema().arguments()[i].name() + "'");
    }
  }
}

void note_gradients(const Expression& expression, c10::SmallVector<bool, 4>& used) {
  if (expression.kind == Expression::Kind::gradient) used[expression.index] = true;
  if (expression.kind == Expression::Kind::gradients) used.assign(used.size(), true);
  for (const Expression& part : expression.parts) note_gradients(part, used);
}

void note_uncovered(Operator& op) {
  if (op.formulas.empty()) return;
  auto used = op.without_gradient;
  for (const Formula& formula : op.formulas) note_gradients(formula.expression, used);
  for (int i = 0; i < op.result_count; ++i) {
    if (!used[i]) op.uncovered.push_back(i);
  }
}

void understand(Operator& op, const std::string& keyword, const std::string& rest) {
  if (keyword == "reference") {
    op.reference = find(rest);
  } else if (keyword == "derivative") {
    const size_t sign = rest.find('=');
    if (sign == std::string::npos) throw std::invalid_argument(op.name + ": a derivative without '='");
    Formula formula;
    set_targets(formula, op, rest.substr(0, sign));
    formula.expression = parse_formula(op, trimmed(rest.substr(sign + 1)));
    check_values(op, formula);
    op.formulas.push_back(std::move(formula));
  } else if (keyword == "not_differentiable") {
    for (const std::string& name : names_in(rest)) op.without_gradient[position_of_result(op, name)] = true;
  } else if (keyword == "no_derivative") {
    op.is_differentiable = false;
  } else if (keyword == "random") {
    op.is_random = true;
  } else {
    throw std::invalid_argument(op.name + ": '" + keyword + "' is not understood");
  }
}

}  // namespace

std::unique_ptr<Operator> parse_operator(const std::string& text) {
  std::unique_ptr<Operator> op;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    const std::string keyword = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : trimmed(line.substr(space));
    if (keyword == "operator") {
      op = std::make_unique<Operator>(find(rest));
    } else if (!op) {
      throw std::invalid_argument("the first line names no operator: " + line);
    } else {
      understand(*op, keyword, rest);
    }
  }
  if (!op) throw std::invalid_argument("no operator is described");
  if (op->is_in_place && (op->result_count != 1 || op->written.size() != 1)) {
    throw std::invalid_argument(op->name + ": an in-place operator overwrites one argument and has one result");
  }
  std::stable_sort(op->formulas.begin(), op->formulas.end(),
                   [](const Formula& a, const Formula& b) { return a.targets.size() > b.targets.size(); });
  check_random(*op);
  note_uncovered(*op);
  return op;
}

}  // namespace opwheel::autograd
