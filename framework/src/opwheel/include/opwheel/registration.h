// Registers a kernel for an operator of a library's list. The kernel's C++ signature follows from the schema: Tensor is
// `const Tensor&`, Tensor(a!) is `Tensor&`, float is `double`; a new Tensor is returned by value, several as a
// std::array, and where the schema hands a mutable argument back the kernel returns void.
#pragma once

#include <torch/csrc/stable/library.h>

#include <array>
#include <bit>
#include <cstddef>
#include <exception>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "opwheel/abi.h"
#include "opwheel/schema.h"
#include "opwheel/tensor.h"

namespace opwheel {
namespace detail {

template <ArgumentKind>
struct CppArgument {
  using type = const Tensor&;
};
template <>
struct CppArgument<ArgumentKind::mutable_tensor> {
  using type = Tensor&;
};
template <>
struct CppArgument<ArgumentKind::number> {
  using type = double;
};

template <class Op>
auto cpp_result() {
  if constexpr (Op::schema.returns_argument) {
    return;
  } else if constexpr (Op::schema.return_count == 1) {
    return Tensor();
  } else {
    return std::array<Tensor, Op::schema.return_count>{};
  }
}

template <class Op, class Indices = std::make_index_sequence<Op::schema.argument_count>>
struct SignatureOf;

template <class Op, std::size_t... I>
struct SignatureOf<Op, std::index_sequence<I...>> {
  using type = decltype(cpp_result<Op>())(typename CppArgument<Op::schema.arguments[I].kind>::type...);
};

// One argument taken off the stack. It owns its tensor: the boxed calling convention hands over a reference each.
template <ArgumentKind kind>
class Unboxed {
 public:
  explicit Unboxed(StableIValue value) : tensor_(torch::stable::detail::to<AtenTensorHandle>(value)) {}
  Tensor& get() { return tensor_; }

 private:
  Tensor tensor_;
};
template <>
class Unboxed<ArgumentKind::number> {
 public:
  explicit Unboxed(StableIValue value) : number_(std::bit_cast<double>(value)) {}
  double get() const { return number_; }

 private:
  double number_;
};

template <class Op>
constexpr std::size_t mutable_argument() {
  for (std::size_t i = 0; i < Op::schema.arguments.size(); ++i) {
    if (Op::schema.arguments[i].kind == ArgumentKind::mutable_tensor) return i;
  }
  return 0;
}

template <class Op>
constexpr int tensor_count() {
  int count = 0;
  for (int i = 0; i < Op::schema.argument_count; ++i) count += Op::schema.arguments[i].kind != ArgumentKind::number;
  return count;
}

// Throws if the argument is None, which arrives as an undefined tensor. Called when a kernel has failed, because the
// kernel's own message would not say so.
template <class Op, std::size_t I>
void check_defined(Unboxed<Op::schema.arguments[I].kind>& argument) {
  if constexpr (Op::schema.arguments[I].kind != ArgumentKind::number) {
    bool is_defined = true;
    OPWHEEL_SHIM(aoti_torch_is_defined(argument.get().handle(), &is_defined));
    if (!is_defined)
      fail(Op::schema.name, ": argument '", Op::schema.arguments[I].name, "' is None, expected a tensor");
  }
}

inline StableIValue box(Tensor&& tensor) { return torch::stable::detail::from(tensor.release()); }

template <class Op, auto kernel, std::size_t... I>
void call_boxed(StableIValue* stack, std::index_sequence<I...>) {
  // Every argument is owned before the kernel runs, so that an exception releases all of them.
  std::tuple<Unboxed<Op::schema.arguments[I].kind>...> arguments{Unboxed<Op::schema.arguments[I].kind>(stack[I])...};
  try {
    if constexpr (Op::schema.returns_argument) {
      kernel(std::get<I>(arguments).get()...);
      stack[0] = box(std::move(std::get<mutable_argument<Op>()>(arguments).get()));
    } else if constexpr (Op::schema.return_count == 1) {
      stack[0] = box(kernel(std::get<I>(arguments).get()...));
    } else {
      auto results = kernel(std::get<I>(arguments).get()...);
      for (std::size_t i = 0; i < results.size(); ++i) stack[i] = box(std::move(results[i]));
    }
  } catch (const std::exception&) {
    (check_defined<Op, I>(std::get<I>(arguments)), ...);
    throw;
  }
}

template <class Op, auto kernel>
void boxed(StableIValue* stack, uint64_t argument_count, uint64_t return_count) {
  if (argument_count != Op::schema.argument_count || return_count != Op::schema.return_count) {
    fail(Op::schema.name, ": the schema in this process is not the one this library was built with (",
         static_cast<int64_t>(argument_count), " arguments, expected ", static_cast<int64_t>(Op::schema.argument_count),
         "); reinstall the core package and its backends in matching versions");
  }
  call_boxed<Op, kernel>(stack, std::make_index_sequence<Op::schema.argument_count>{});
}

}  // namespace detail

template <class Op>
using Signature = typename detail::SignatureOf<Op>::type;

template <class Op, auto kernel>
void implement(torch::stable::detail::StableLibrary& library) {
  static_assert(std::is_same_v<decltype(kernel), Signature<Op>*>,
                "opwheel: this kernel's C++ signature does not match the operator's schema");
  library.impl(std::string(Op::schema.name).c_str(), &detail::boxed<Op, kernel>);
}

}  // namespace opwheel
