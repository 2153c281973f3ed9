// Reads an operator schema at compile time, so that a kernel with the wrong C++ signature does not compile. Without
// this check, a kernel that takes int64_t for a schema's `float` would be given the number's raw bits, and compute
// garbage. In C++17, which ExecuTorch's kernels are compiled as.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

// Whether the release of PyTorch that the build names (torch_target in setup.py) passes a Generator to C++ kernels.
#if defined(TORCH_TARGET_VERSION) && TORCH_TARGET_VERSION >= 0x020d000000000000
#define OPWHEEL_DETAIL_PASSES_GENERATORS 1
#else
#define OPWHEEL_DETAIL_PASSES_GENERATORS 0
#endif

namespace opwheel {

// What an argument is in a schema. opwheel/detail/arguments.h says what each is in C++.
enum class ArgumentKind {
  tensor,          // Tensor
  mutable_tensor,  // Tensor(a!)
  number,          // float
  integer,         // int, SymInt
  boolean,         // bool
  string,          // str
  dtype,           // ScalarType
  device,          // Device
  layout,          // Layout
  memory_format,   // MemoryFormat
  generator,       // Generator
  optional_tensor,
  optional_number,
  optional_integer,
  optional_boolean,
  optional_string,
  optional_dtype,
  optional_device,
  optional_layout,
  optional_memory_format,
  optional_generator,
  tensor_list,
  optional_tensors,  // Tensor?[]
  number_list,
  integer_list,
  boolean_list,
  string_list,
  optional_tensor_list,
  optional_number_list,
  optional_integer_list,
  optional_boolean_list,
  optional_string_list,
};

struct Argument {
  std::string_view name;
  ArgumentKind kind = ArgumentKind::tensor;
  bool is_written = false;  // `Tensor(a!)`, also as a part of its type: `Tensor(a!)[]`
};

// Why a schema cannot have kernels in C++. The macros that declare operators say so in words.
enum class SchemaError { none, syntax, unknown_type, scalar, generator, results, too_many_arguments };

struct Schema {
  static constexpr int kMaxArguments = 32;

  std::string_view name;  // with the overload, "axpby.out"
  std::array<Argument, kMaxArguments> arguments{};
  int argument_count = 0;
  int return_count = 0;
  bool returns_argument = false;  // `-> Tensor(a!)`: the mutable argument itself is returned
  SchemaError error = SchemaError::none;
};

namespace detail {

struct TypeName {
  std::string_view text;
  ArgumentKind kind;
};

inline constexpr TypeName kTypes[] = {
    {"Tensor", ArgumentKind::tensor},
    {"float", ArgumentKind::number},
    {"int", ArgumentKind::integer},
    {"SymInt", ArgumentKind::integer},
    {"bool", ArgumentKind::boolean},
    {"str", ArgumentKind::string},
    {"ScalarType", ArgumentKind::dtype},
    {"Device", ArgumentKind::device},
    {"Layout", ArgumentKind::layout},
    {"MemoryFormat", ArgumentKind::memory_format},
    {"Generator", ArgumentKind::generator},
    {"Tensor?", ArgumentKind::optional_tensor},
    {"float?", ArgumentKind::optional_number},
    {"int?", ArgumentKind::optional_integer},
    {"SymInt?", ArgumentKind::optional_integer},
    {"bool?", ArgumentKind::optional_boolean},
    {"str?", ArgumentKind::optional_string},
    {"ScalarType?", ArgumentKind::optional_dtype},
    {"Device?", ArgumentKind::optional_device},
    {"Layout?", ArgumentKind::optional_layout},
    {"MemoryFormat?", ArgumentKind::optional_memory_format},
    {"Generator?", ArgumentKind::optional_generator},
    {"Tensor[]", ArgumentKind::tensor_list},
    {"Tensor?[]", ArgumentKind::optional_tensors},
    {"float[]", ArgumentKind::number_list},
    {"int[]", ArgumentKind::integer_list},
    {"SymInt[]", ArgumentKind::integer_list},
    {"bool[]", ArgumentKind::boolean_list},
    {"str[]", ArgumentKind::string_list},
    {"Tensor[]?", ArgumentKind::optional_tensor_list},
    {"float[]?", ArgumentKind::optional_number_list},
    {"int[]?", ArgumentKind::optional_integer_list},
    {"SymInt[]?", ArgumentKind::optional_integer_list},
    {"bool[]?", ArgumentKind::optional_boolean_list},
    {"str[]?", ArgumentKind::optional_string_list},
};

constexpr bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}
constexpr bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Whether what follows the name of a type is the same, as `[2]` and `[]` are.
constexpr bool is_same_suffix(std::string_view given, std::string_view known) {
  const std::size_t open = given.find('['), close = given.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos) return given == known;
  return known.find('[') == open && given.substr(0, open) == known.substr(0, open) &&
         given.substr(close) == known.substr(std::min(known.find(']'), known.size()));
}

// A type as the schema writes it: `Tensor(a!)` is mutable, `int[2]` is a list, like `int[]`. What is written to in
// `Tensor(a!)?` and `Tensor(a!)[]` is the tensors' memory: to C++ these are `Tensor?` and `Tensor[]`.
constexpr bool read_type(std::string_view type, Schema& schema, ArgumentKind& kind) {
  const std::string_view base = type.substr(0, type.find_first_of("([?"));
  const bool is_written = starts_with(type, "Tensor(") && type.find("!)") != std::string_view::npos;
  const std::string_view suffix = type.substr(is_written ? type.find("!)") + 2 : base.size());
  if (is_written && suffix.empty()) {
    kind = ArgumentKind::mutable_tensor;
    return true;
  }
  for (const TypeName& known : kTypes) {
    if (known.text.substr(0, base.size()) == base && is_same_suffix(suffix, known.text.substr(base.size()))) {
      kind = known.kind;
      const bool is_generator = kind == ArgumentKind::generator || kind == ArgumentKind::optional_generator;
      if (is_generator && !OPWHEEL_DETAIL_PASSES_GENERATORS) schema.error = SchemaError::generator;
      return schema.error == SchemaError::none;
    }
  }
  schema.error = base == "Scalar" ? SchemaError::scalar : SchemaError::unknown_type;
  return false;
}

// The end of the first item of a list: a comma that is not within brackets or quotes.
constexpr std::size_t end_of_item(std::string_view list) {
  int depth = 0;
  char quote = 0;  // the one that ends the text in quotes
  for (std::size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if (quote != 0) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '"' || c == '\'') quote = c;
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ',' && depth == 0) return i;
  }
  return list.size();
}

constexpr std::string_view trimmed(std::string_view text) {
  while (starts_with(text, " ")) text.remove_prefix(1);
  while (ends_with(text, " ")) text.remove_suffix(1);
  return text;
}

}  // namespace detail

// Arguments of all types of kTypes, with or without default values, the `*` that starts keyword-only ones, and Tensor,
// Tensor(a!), (Tensor, Tensor, ...) or () as results, with or without names.
constexpr Schema parse_schema(std::string_view text) {
  Schema schema;
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(") ->");
  if (open == std::string_view::npos || close == std::string_view::npos) {
    schema.error = SchemaError::syntax;
    return schema;
  }
  schema.name = text.substr(0, open);

  bool writes_tensor = false;
  std::string_view list = text.substr(open + 1, close - open - 1);
  while (!list.empty()) {
    const std::size_t end = detail::end_of_item(list);
    std::string_view item = detail::trimmed(list.substr(0, end));
    list = end == list.size() ? std::string_view{} : list.substr(end + 1);
    if (item == "*") continue;
    const std::size_t space = item.find(' ');
    if (space == std::string_view::npos) {
      schema.error = SchemaError::syntax;
      return schema;
    }
    if (schema.argument_count == Schema::kMaxArguments) {
      schema.error = SchemaError::too_many_arguments;
      return schema;
    }
    ArgumentKind kind = ArgumentKind::tensor;
    const std::string_view type = item.substr(0, space);
    if (!detail::read_type(type, schema, kind)) return schema;
    const std::string_view name = item.substr(space + 1, item.find('=') - space - 1);
    const bool is_written = type.find('!') != std::string_view::npos;
    schema.arguments[schema.argument_count++] = {name, kind, is_written};
    writes_tensor |= kind == ArgumentKind::mutable_tensor;
  }

  std::string_view result = detail::trimmed(text.substr(close + 4));
  schema.returns_argument = result == "Tensor(a!)";
  if (detail::starts_with(result, "(") && detail::ends_with(result, ")")) result = result.substr(1, result.size() - 2);
  while (!result.empty()) {
    const std::size_t end = detail::end_of_item(result);
    const std::string_view type = detail::trimmed(result.substr(0, end));
    result = end == result.size() ? std::string_view{} : result.substr(end + 1);
    const bool is_given_back = schema.returns_argument && writes_tensor;
    if (type != "Tensor" && !detail::starts_with(type, "Tensor ") && !is_given_back) {
      schema.error = SchemaError::results;
    }
    ++schema.return_count;
  }
  return schema;
}

// Whether a kernel that was compiled for one of them can be called by the other: default values do not matter, nor
// which arguments are keyword-only. Names do: arguments that have changed places have the same types.
constexpr bool is_same_call(const Schema& one, const Schema& other) {
  if (one.error != SchemaError::none || other.error != SchemaError::none) return false;
  if (one.argument_count != other.argument_count || one.return_count != other.return_count) return false;
  for (int i = 0; i < one.argument_count; ++i) {
    const Argument &a = one.arguments[i], &b = other.arguments[i];
    if (a.name != b.name || a.kind != b.kind || a.is_written != b.is_written) return false;
  }
  return one.returns_argument == other.returns_argument;
}

// Whether an element-wise functor can compute it.
constexpr bool is_elementwise(const Schema& schema) {
  for (int i = 0; i < schema.argument_count; ++i) {
    if (schema.arguments[i].kind > ArgumentKind::number) return false;
  }
  return schema.return_count > 0;
}

}  // namespace opwheel

// Refuses, in words, a schema that cannot have kernels in C++.
#define OPWHEEL_CHECK_SCHEMA(identifier, schema)                                                                       \
  static_assert((schema).error != ::opwheel::SchemaError::syntax,                                                      \
                "opwheel: the schema of " #identifier                                                                  \
                " is not of the form 'name(Type argument, ...) -> Type'; write it as native_functions.yaml does");     \
  static_assert(                                                                                                       \
      (schema).error != ::opwheel::SchemaError::unknown_type,                                                          \
      "opwheel: the schema of " #identifier                                                                            \
      " has an argument of a type that C++ kernels cannot take; use one of those that opwheel/detail/arguments.h "     \
      "lists");                                                                                                        \
  static_assert((schema).error != ::opwheel::SchemaError::scalar,                                                      \
                "opwheel: the schema of " #identifier                                                                  \
                " has a Scalar, which the stable ABI cannot pass to a C++ kernel: declare it as float or int, or "     \
                "write schema and kernel in Python");                                                                  \
  static_assert(                                                                                                       \
      (schema).error != ::opwheel::SchemaError::generator,                                                             \
      "opwheel: the schema of " #identifier                                                                            \
      " has a Generator, which the stable ABI passes from torch 2.13 on: set torch_target=\"2.13\" in setup.py, pass " \
      "a seed as an int, or write schema and kernel in Python");                                                       \
  static_assert((schema).error != ::opwheel::SchemaError::results,                                                     \
                "opwheel: the schema of " #identifier                                                                  \
                " has a result that is not a Tensor, nor the argument Tensor(a!) that it writes to; return a fixed "   \
                "number of Tensors: a number as one of shape (), in place of a list one or several of them");          \
  static_assert((schema).error != ::opwheel::SchemaError::too_many_arguments,                                          \
                "opwheel: the schema of " #identifier                                                                  \
                " has more than 32 arguments, the most that C++ kernels take; pass several of them as one list, or "   \
                "write schema and kernel in Python")
