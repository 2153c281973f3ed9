// Registers a kernel for an operator of a library's list. The kernel's C++ signature follows from the schema: arguments
// as opwheel/detail/arguments.h has them; a new Tensor is returned by value, several as a std::array, and where the
// schema ends with `-> ()` or returns a mutable argument the kernel returns void.
#pragma once

#include <torch/csrc/stable/library.h>

#include <array>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "opwheel/detail/abi.h"
#include "opwheel/detail/arguments.h"
#include "opwheel/detail/schema.h"
#include "opwheel/detail/tensor.h"

namespace opwheel {
namespace detail {

template <class Op>
auto cpp_result() {
  if constexpr (Op::schema.returns_argument || Op::schema.return_count == 0) {
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
  using type = decltype(cpp_result<Op>())(typename Unboxed<Op::schema.arguments[I].kind>::type...);
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
  for (int i = 0; i < Op::schema.argument_count; ++i) count += is_tensor(Op::schema.arguments[i].kind);
  return count;
}

// Throws if the argument is None, which arrives as an undefined tensor. Called when a kernel has failed, because the
// kernel's own message would not say so.
template <class Op, std::size_t I>
void check_defined(Unboxed<Op::schema.arguments[I].kind>& argument) {
  if constexpr (is_tensor(Op::schema.arguments[I].kind)) {
    bool is_defined = true;
    OPWHEEL_SHIM(aoti_torch_is_defined(argument.get().handle(), &is_defined));
    if (!is_defined)
      fail(Op::schema.name, ": argument '", Op::schema.arguments[I].name, "' is None, expected a tensor; pass one");
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
    } else if constexpr (Op::schema.return_count == 0) {
      kernel(std::get<I>(arguments).get()...);
    } else if constexpr (Op::schema.return_count == 1) {
      stack[0] = box(kernel(std::get<I>(arguments).get()...));
    } else {
      auto results = kernel(std::get<I>(arguments).get()...);
      for (std::size_t i = 0; i < results.size(); ++i) stack[i] = box(std::move(results[i]));
    }
  } catch (const std::exception& error) {
    (check_defined<Op, I>(std::get<I>(arguments)), ...);
    fail(with_operator(Op::schema.name, error.what()));
  }
}

template <class Op, auto kernel>
void boxed(StableIValue* stack, uint64_t argument_count, uint64_t return_count) {
  if (argument_count != Op::schema.argument_count || return_count != Op::schema.return_count) {
    fail(Op::schema.name, ": the schema in this process is not the one this library was built with (",
         static_cast<int64_t>(argument_count), " arguments and ", static_cast<int64_t>(return_count),
         " results, expected ", static_cast<int64_t>(Op::schema.argument_count), " and ",
         static_cast<int64_t>(Op::schema.return_count),
         "); reinstall the core package and its backends in matching versions");
  }
  call_boxed<Op, kernel>(stack, std::make_index_sequence<Op::schema.argument_count>{});
}

}  // namespace detail

template <class Op>
using Signature = typename detail::SignatureOf<Op>::type;

namespace detail {

template <class Op, int position, class Given>
constexpr void check_argument() {
  if constexpr (position < Op::schema.argument_count) {
    using Expected = typename Unboxed<Op::schema.arguments[position].kind>::type;
    static_assert(
        std::is_same_v<Given, Expected>,
        "opwheel: an argument of this kernel has another type than the schema says; give it the type that "
        "opwheel/detail/arguments.h has for it. The compiler names the operator, the argument's position (from 0), "
        "the type as given and, below, as expected");
  }
}

template <class Op, class Result, class... Given>
constexpr void check_signature(Result (*)(Given...)) {
  static_assert(sizeof...(Given) == Op::schema.argument_count,
                "opwheel: this kernel does not have as many arguments as its schema; give it one for each, in the "
                "schema's order, keyword-only ones and outputs included (opwheel/detail/arguments.h)");
  static_assert(std::is_same_v<Result, decltype(cpp_result<Op>())>,
                "opwheel: this kernel's result does not match its schema: return a Tensor for one result, a "
                "std::array<Tensor, N> for several, void for none and for an argument that is returned");
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (check_argument<Op, static_cast<int>(I), Given>(), ...);
  }(std::index_sequence_for<Given...>{});
}

}  // namespace detail

template <class Op, auto kernel>
void implement(torch::stable::detail::StableLibrary& library) {
  detail::check_signature<Op>(kernel);
  library.impl(std::string(Op::schema.name).c_str(), &detail::boxed<Op, kernel>);
}

}  // namespace opwheel
