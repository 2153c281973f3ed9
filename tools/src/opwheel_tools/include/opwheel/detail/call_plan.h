// From the schema that a call was written for to the one that the operator has in this process: which argument stands
// where on the dispatcher's stack, and which are filled in with the schema's defaults. opwheel/call.h makes the calls.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opwheel/detail/arguments.h"
#include "opwheel/detail/error.h"
#include "opwheel/detail/schema.h"

namespace opwheel::detail {

// An argument as a schema in this process writes it. Its type may be one that no kernel takes.
struct Parameter {
  std::string type;       // without sizes and aliases: int[], Tensor, Tensor(!) where it is written
  int64_t size = -1;      // of int[2]
  std::string_view name;  // empty for a result without one
  std::optional<std::string_view> default_text;
};

// `Tensor(a -> *) self` and `int[2] stride=1`, as parts of a schema.
inline Parameter read_parameter(std::string_view item) {
  Parameter parameter;
  const std::size_t equals = item.find('=');
  if (equals != std::string_view::npos) parameter.default_text = trimmed(item.substr(equals + 1));
  item = trimmed(item.substr(0, equals));
  std::string_view type = item;
  const std::size_t space = item.rfind(' ');
  if (space != std::string_view::npos && item.find(')', space) == std::string_view::npos) {
    type = trimmed(item.substr(0, space));
    parameter.name = item.substr(space + 1);
  }
  std::string text(type);
  if (const auto open = text.find('('); open != std::string::npos) {
    const auto length = text.find(')') + 1 - open;
    const bool is_written = text.substr(open, length).find('!') != std::string::npos;
    text.replace(open, length, is_written ? "(!)" : "");
  }
  if (const auto open = text.find('['); open != std::string::npos && text[open + 1] != ']') {
    const auto length = text.find(']') - open - 1;
    parameter.size = std::atoll(text.c_str() + open + 1);
    text.erase(open + 1, length);
  }
  if (text.starts_with("SymInt")) text.replace(0, 6, "int");
  parameter.type = text;
  return parameter;
}

inline std::vector<Parameter> read_parameters(std::string_view list) {
  std::vector<Parameter> parameters;
  while (!list.empty()) {
    const std::size_t end = end_of_item(list);
    const std::string_view item = trimmed(list.substr(0, end));
    list = end == list.size() ? std::string_view{} : list.substr(end + 1);
    if (item != "*") parameters.push_back(read_parameter(item));
  }
  return parameters;
}

struct Parameters {
  std::vector<Parameter> arguments, results;

  explicit Parameters(std::string_view schema) {
    const std::size_t open = schema.find('('), close = schema.rfind(") ->");
    arguments = read_parameters(schema.substr(open + 1, close - open - 1));
    std::string_view result = trimmed(schema.substr(close + 4));
    if (result.starts_with('(')) result = result.substr(1, result.size() - 2);
    results = read_parameters(result);
  }
};

// Puts a default value on the stack, each time a new one, which PyTorch takes over.
using Default = std::function<StableIValue()>;

template <class T>
std::optional<Default> always(std::optional<T> value) {
  if (!value) return std::nullopt;
  return [value = *std::move(value)] { return Put<T>::from(value); };
}

// Values as PyTorch prints them in a schema; nothing, if the text is none.
template <class T>
std::optional<T> read_value(std::string_view text);

template <>
inline std::optional<double> read_value<double>(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  return copy.empty() || *end != 0 ? std::nullopt : std::optional<double>(value);
}
template <>
inline std::optional<int64_t> read_value<int64_t>(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const int64_t value = std::strtoll(copy.c_str(), &end, 10);
  return copy.empty() || *end != 0 ? std::nullopt : std::optional<int64_t>(value);
}
template <>
inline std::optional<bool> read_value<bool>(std::string_view text) {
  return text == "True" || text == "False" ? std::optional<bool>(text == "True") : std::nullopt;
}
template <>
inline std::optional<std::string> read_value<std::string>(std::string_view text) {
  if (text.size() < 2 || (text[0] != '"' && text[0] != '\'') || text.back() != text[0]) return std::nullopt;
  std::string value;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\' && (text[i + 1] == '\\' || text[i + 1] == '"' || text[i + 1] == '\''))
      ++i;
    else if (text[i] == '\\')
      return std::nullopt;
    value += text[i];
  }
  return value;
}

// `[1, 2]`, or `1`, which stands for as many of them as a list of fixed size has.
template <class T>
std::optional<std::vector<T>> read_list(std::string_view text, int64_t size) {
  std::vector<T> values;
  if (!text.starts_with('[')) {
    const std::optional<T> value = read_value<T>(text);
    if (!value || size < 0) return std::nullopt;
    values.assign(static_cast<std::size_t>(size), *value);
    return values;
  }
  std::string_view list = text.substr(1, text.size() - 2);
  while (!list.empty()) {
    const std::size_t end = end_of_item(list);
    const std::optional<T> value = read_value<T>(trimmed(list.substr(0, end)));
    list = end == list.size() ? std::string_view{} : list.substr(end + 1);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

// How the default of an argument that the call does not give is put on the stack; nothing, if that is not known. A
// dtype, a layout and the like are printed as numbers that only PyTorch can read.
inline std::optional<Default> default_of(const Parameter& parameter) {
  const std::string_view text = *parameter.default_text;
  std::string_view type = parameter.type;
  const bool is_optional = type.ends_with('?');
  if (is_optional) type.remove_suffix(1);
  if (text == "None") return is_optional ? std::optional<Default>([] { return StableIValue{0}; }) : std::nullopt;

  std::optional<Default> value;
  if (type == "float") value = always(read_value<double>(text));
  if (type == "int") value = always(read_value<int64_t>(text));
  if (type == "bool") value = always(read_value<bool>(text));
  if (type == "str") value = always(read_value<std::string>(text));
  if (type == "float[]") value = always(read_list<double>(text, parameter.size));
  if (type == "int[]") value = always(read_list<int64_t>(text, parameter.size));
  if (type == "bool[]") value = always(read_list<bool>(text, parameter.size));
  if (!value || !is_optional) return value;
  return [put = *std::move(value)] { return Put<std::optional<StableIValue>>::from(put()); };
}

// Where each value on the stack comes from.
struct CallPlan {
  struct Slot {
    int given = -1;  // the position among the arguments of the call
    Default put;     // without it: the default
  };

  std::string operator_name, overload;  // as torch_call_dispatcher() takes them
  std::vector<Slot> slots;
};

// Arguments are found by their names: what the operator has got since, anywhere among the others, has to have a
// default.
//
// Throws where the call does not fit, with both schemas.
inline std::unique_ptr<CallPlan> plan_call(std::string_view written, std::string_view here) {
  const auto refuse = [&](const auto&... reason) {
    fail("a call that was written for '", written, "' does not fit the operator in this process, '", here,
         "': ", reason...,
         ". Install versions of the libraries that belong together, or build this one again for that schema "
         "(OPWHEEL-E032)");
  };
  const Parameters caller(written), callee(here);
  auto plan = std::make_unique<CallPlan>();
  const std::string_view name = written.substr(0, written.find('('));
  const std::size_t dot = name.find('.');
  plan->operator_name = name.substr(0, dot);
  if (dot != std::string_view::npos) plan->overload = name.substr(dot + 1);

  std::size_t found = 0;
  for (const Parameter& parameter : callee.arguments) {
    CallPlan::Slot slot;
    for (std::size_t i = 0; i < caller.arguments.size(); ++i) {
      if (caller.arguments[i].name == parameter.name) slot.given = static_cast<int>(i);
    }
    if (slot.given >= 0) {
      const std::string& type = caller.arguments[static_cast<std::size_t>(slot.given)].type;
      if (type != parameter.type) refuse("'", parameter.name, "' is ", parameter.type, ", and the call has ", type);
      ++found;
    } else {
      if (!parameter.default_text) refuse("the call has no '", parameter.name, "', which has no default");
      std::optional<Default> put = default_of(parameter);
      if (!put) {
        refuse("the call has no '", parameter.name, "', whose default ", *parameter.default_text,
               " cannot be filled in for a ", parameter.type, "; write the call with that argument");
      }
      slot.put = *std::move(put);
    }
    plan->slots.push_back(std::move(slot));
  }
  if (found != caller.arguments.size()) {
    for (const Parameter& argument : caller.arguments) {
      bool is_known = false;
      for (const Parameter& parameter : callee.arguments) is_known |= parameter.name == argument.name;
      if (!is_known) refuse("it has no argument '", argument.name, "'");
    }
  }
  bool same = caller.results.size() == callee.results.size();
  for (std::size_t i = 0; same && i < caller.results.size(); ++i) {
    same = caller.results[i].type == callee.results[i].type;
  }
  if (!same) refuse("the results are others");
  return plan;
}

}  // namespace opwheel::detail
