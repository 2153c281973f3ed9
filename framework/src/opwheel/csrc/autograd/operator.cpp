#include "operator.h"

#include <algorithm>

#include "formula.h"

namespace opwheel::autograd {

namespace {

bool has_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  if (type.kind() != c10::TypeKind::OptionalType && type.kind() != c10::TypeKind::ListType) return false;
  return has_tensors(*type.containedType(0));
}

// What a formula names is added to what the plan needs.
void collect(const Expression& expression, const Operator& op, Plan& plan) {
  const auto add = [](Positions& positions, int position) {
    if (std::find(positions.begin(), positions.end(), position) == positions.end()) positions.push_back(position);
  };
  switch (expression.kind) {
    case Expression::Kind::gradient:
      add(plan.gradients, expression.index);
      break;
    case Expression::Kind::gradients:
      for (int i = 0; i < op.result_count; ++i) add(plan.gradients, i);
      break;
    case Expression::Kind::argument:
      add(plan.arguments, expression.index);
      break;
    case Expression::Kind::result:
      add(plan.results, expression.index);
      break;
    case Expression::Kind::property:
      if (!is_kept(expression)) break;
      plan.properties.push_back(&expression);
      return;  // not the tensor
    default:
      break;
  }
  for (const Expression& part : expression.parts) collect(part, op, plan);
}

}  // namespace

Operator::Operator(const c10::OperatorHandle& handle) : handle(handle) {
  const auto& arguments = schema().arguments();
  const auto& returns = schema().returns();
  const std::string& qualified = schema().name();
  name = qualified.substr(qualified.find("::") + 2);
  if (!schema().overload_name().empty()) name += "." + schema().overload_name();
  argument_count = static_cast<int>(arguments.size());
  result_count = static_cast<int>(returns.size());
  TORCH_CHECK_VALUE(argument_count <= 64, name, ": more than 64 arguments");
  for (int i = 0; i < argument_count; ++i) {
    if (has_tensors(*arguments[i].type())) tensors.push_back(i);
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite()) written.push_back(i);
  }
  for (int i = 0; i < result_count; ++i) {
    const std::string& own = returns[i].name();
    result_names.push_back(!own.empty() ? own : result_count == 1 ? "result" : "result" + std::to_string(i));
  }
  without_gradient.resize(result_count);
  const bool hands_back =
      !written.empty() && std::any_of(returns.begin(), returns.end(), [](const auto& r) { return r.alias_info(); });
  is_out = hands_back && arguments[written[0]].kwarg_only();
  is_in_place = hands_back && !is_out;
}

const Plan& Operator::plan(uint64_t needed) const {
  const Plan* const latest = latest_.load(std::memory_order_acquire);
  if (latest != nullptr && latest->needed == needed) return *latest;
  const Plan& known = made(plans_, needed, {});
  latest_.store(&known, std::memory_order_release);
  return known;
}

const Plan& Operator::uncovered_plan(uint64_t needed) const { return made(uncovered_plans_, needed, uncovered); }

const Plan& Operator::made(Plans& plans, uint64_t needed, const Positions& uncovered) const {
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<const Plan>& known = plans[needed];
  if (!known) known = std::make_unique<const Plan>(make_plan(needed, uncovered));
  return *known;
}

Plan Operator::make_plan(uint64_t needed, const Positions& uncovered) const {
  const auto bits = [](const Formula& formula) {
    uint64_t result = 0;
    for (int target : formula.targets) result |= uint64_t{1} << target;
    return result;
  };
  uint64_t single = 0;
  for (const Formula& formula : formulas) {
    if (formula.targets.size() == 1) single |= bits(formula);
  }
  // A formula for several arguments is taken where all of them are needed, or have no formula of their own.
  Plan plan;
  plan.needed = needed;
  plan.uncovered = uncovered;
  plan.sources.resize(argument_count);
  uint64_t left = needed;
  for (const Formula& formula : formulas) {
    const uint64_t wanted = left & bits(formula);
    if (!wanted || (wanted != bits(formula) && !(wanted & ~single))) continue;
    const Expression& expression = formula.expression;
    const bool arrives = expression.kind == Expression::Kind::gradient;
    const int position = arrives ? Source::kArrives : static_cast<int>(plan.formulas.size());
    for (size_t i = 0; i < formula.targets.size(); ++i) {
      if (!(left >> formula.targets[i] & 1)) continue;
      plan.sources[formula.targets[i]] = {position, arrives ? expression.index : formula.values[i]};
    }
    if (!arrives) plan.formulas.push_back(&expression);
    collect(expression, *this, plan);
    left &= ~wanted;
  }
  std::stable_partition(plan.properties.begin(), plan.properties.end(), [](const Expression* property) {
    return property->parts[0].kind == Expression::Kind::argument;
  });
  plan.without_formula = left != 0;
  if (!is_random) {
    for (int i : plan.results) plan.is_inexact_again |= without_gradient[i];
  }
  if (plan.without_formula) {
    plan.formulas.clear();
    plan.results.clear();
    plan.properties.clear();
  }
  if (plan.without_formula || !plan.uncovered.empty() || plan.is_inexact_again) {
    plan.arguments.clear();
    for (int i = 0; i < argument_count; ++i) plan.arguments.push_back(i);
  }
  return plan;
}

}  // namespace opwheel::autograd
