// Reads an operator schema at compile time, so that a kernel with the wrong C++ signature does not compile. Without
// this check, a kernel that takes int64_t for a schema's `float` would be given the number's raw bits, and compute
// garbage.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace opwheel {

enum class ArgumentKind { tensor, mutable_tensor, number };

struct Argument {
  std::string_view name;
  ArgumentKind kind = ArgumentKind::tensor;
};

struct Schema {
  static constexpr int kMaxArguments = 8;

  std::string_view name;  // with the overload, "axpby.out"
  std::array<Argument, kMaxArguments> arguments{};
  int argument_count = 0;
  int return_count = 0;
  bool returns_argument = false;  // `-> Tensor(a!)`: the mutable argument itself is handed back
};

// The grammar is the part of PyTorch's that element-wise operators use: Tensor, Tensor(a!) and float arguments, the `*`
// that starts keyword-only arguments, and Tensor, Tensor(a!) or (Tensor, Tensor, ...) results.
constexpr Schema parse_schema(std::string_view text) {
  Schema schema;
  const std::size_t open = text.find('(');
  const std::size_t close = text.find(") ->");
  schema.name = text.substr(0, open);

  std::string_view list = text.substr(open + 1, close - open - 1);
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(list.find_first_not_of(' ', comma + 1));
    if (item == "*") continue;
    const std::size_t space = item.find(' ');
    const std::string_view type = item.substr(0, space);
    ArgumentKind kind = ArgumentKind::number;
    if (type == "Tensor") {
      kind = ArgumentKind::tensor;
    } else if (type == "Tensor(a!)") {
      kind = ArgumentKind::mutable_tensor;
    } else if (type != "float") {
      throw "opwheel/schema.h: an argument is neither Tensor, Tensor(a!) nor float";
    }
    schema.arguments[schema.argument_count++] = {item.substr(space + 1), kind};
  }

  const std::string_view result = text.substr(close + 5);
  schema.returns_argument = result == "Tensor(a!)";
  for (std::size_t at = result.find("Tensor"); at != std::string_view::npos; at = result.find("Tensor", at + 1)) {
    ++schema.return_count;
  }
  return schema;
}

}  // namespace opwheel
