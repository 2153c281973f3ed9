// One argument of a call, as conditions look at it: the same whether the call comes in boxes or as a C++ call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <variant>

namespace opwheel::foreign {

struct None {};
struct Other {};  // conditions cannot ask anything of it

using Argument = std::variant<Other, None, const at::Tensor*, double, c10::IntArrayRef, c10::ArrayRef<c10::IValue>>;

inline Argument viewed(const at::Tensor& value) { return value.defined() ? Argument(&value) : Argument(None()); }
inline Argument viewed(double value) { return value; }
inline Argument viewed(int64_t value) { return static_cast<double>(value); }
inline Argument viewed(bool value) { return static_cast<double>(value); }
inline Argument viewed(at::ScalarType value) { return static_cast<double>(value); }
inline Argument viewed(const c10::SymInt& value) {
  const std::optional<int64_t> known = value.maybe_as_int();
  return known ? viewed(*known) : Argument(Other());
}
inline Argument viewed(c10::SymIntArrayRef value) {
  const std::optional<c10::IntArrayRef> known = c10::asIntArrayRefSlowOpt(value);
  return known ? Argument(*known) : Argument(Other());
}

template <class T>
Argument viewed(const std::optional<T>& value) {
  return value ? viewed(*value) : Argument(None());
}

inline Argument viewed(const c10::IValue& value) {
  if (value.isTensor()) return viewed(value.toTensor());
  if (value.isNone()) return None();
  if (value.isInt()) return viewed(value.toInt());
  if (value.isDouble()) return value.toDouble();
  if (value.isBool()) return viewed(value.toBool());
  if (value.isIntList()) return value.toListRef();  // numbers that are symbols are another type
  return Other();
}

}  // namespace opwheel::foreign
