// Registers a kernel for an operator of a library's list. The kernel's C++ signature follows from the schema
// (opwheel/detail/arguments.h): a new Tensor is returned by value, several as a std::array, and where the schema ends
// with `-> ()` or returns a mutable argument the kernel returns void.
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

// Where a backend registers its kernels: what OPWHEEL_KERNELS gives to the block behind it. Hidden, as StableLibrary
// is.
class [[gnu::visibility("hidden")]] KernelRegistry {
 public:
  using StableLibrary = torch::stable::detail::StableLibrary;

  // The schema library's <library>_schemas, or null.
  using Schemas = const char* const* (*)();

  KernelRegistry(Schemas schemas, StableLibrary& registered)
      : registered_(registered), texts_(schemas == nullptr ? nullptr : schemas()) {}

  // Leaves out an operator that has another schema in this process than the kernel was compiled for: the kernel would
  // take what arrives for something else. Also one that this process does not have.
  void impl(const Schema& schema, const char* text, void (*kernel)(StableIValue*, uint64_t, uint64_t)) {
    if (is_as_compiled(schema, text)) registered_.impl(std::string(schema.name).c_str(), kernel);
  }

 private:
  bool is_as_compiled(const Schema& schema, std::string_view text) const {
    if (texts_ == nullptr) return true;
    for (const char* const* here = texts_; *here != nullptr; ++here) {
      if (text == *here) return true;
      const Schema other = parse_schema(*here);
      if (other.name == schema.name) return is_same_call(schema, other);
    }
    return false;
  }

  StableLibrary& registered_;
  const char* const* texts_;  // the schemas in this process, if they are known; ended by a null pointer
};

template <class Op, auto kernel>
void implement(KernelRegistry& registry) {
  detail::check_signature<Op>(kernel);
  registry.impl(Op::schema, Op::schema_text, &detail::boxed<Op, kernel>);
}

}  // namespace opwheel

// A block that registers kernels of a library at a dispatch key: OPWHEEL_KERNELS(waves, CPU, m) { implement<...>(m); }
#define OPWHEEL_KERNELS(library, key, m) \
  OPWHEEL_DETAIL_KERNELS(library, key, m, C10_CONCATENATE(opwheel_kernels_##library##_##key##_, C10_UID))
// Null where the schema library is not open for all to see, as the registry in Python and opwheel/load.h open it. Weak
// instead of asked for by dlsym(), which would need the newest C library where it was built on one.
#define OPWHEEL_DETAIL_KERNELS(library, key, m, function)                                         \
  extern "C" __attribute__((weak, visibility("default"))) const char* const* library##_schemas(); \
  static void function(::opwheel::KernelRegistry& m);                                             \
  STABLE_TORCH_LIBRARY_IMPL(library, key, opwheel_registered) {                                   \
    ::opwheel::KernelRegistry registry(&library##_schemas, opwheel_registered);                   \
    function(registry);                                                                           \
  }                                                                                               \
  static void function(::opwheel::KernelRegistry& m)
