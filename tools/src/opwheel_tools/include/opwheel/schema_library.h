// Defines a library's operators, and nothing else, in a schema library, so that programs without Python find them. A
// schema library has one source file:
//
//     #include "opwheel/schema_library.h"
//     #include "waves/operators.h"
//
//     OPWHEEL_SCHEMA_LIBRARY(waves, WAVES_OPERATORS)
#pragma once

#include <torch/csrc/stable/library.h>

#include <string>
#include <type_traits>
#include <utility>

#include "opwheel/detail/registration.h"
#include "opwheel/detail/schema.h"
#include "opwheel/operators.h"

namespace opwheel::schema_library {

using torch::stable::detail::StableLibrary;

template <class... Operators>
void define(StableLibrary& library, OperatorList<Operators...>) {
  (library.def(Operators::schema_text), ...);
}

// Calls ``visit`` with each tensor of an argument: one, several, or none.
template <class T, class Visit>
void each_tensor(const T& value, const Visit& visit) {
  if constexpr (std::is_same_v<T, Tensor>) {
    visit(value);
  } else if constexpr (requires { value.has_value(); }) {
    if (value) each_tensor(*value, visit);
  } else if constexpr (requires { value.begin(); }) {
    for (const auto& one : value) each_tensor(one, visit);
  }
}

// The kernel that runs where no backend has registered one: an error. In Python another one takes its place, which
// knows the installed backends (opwheel/dispatch/fallback.py).
template <class Name, class Op>
void no_backend(StableIValue* stack, uint64_t, uint64_t) {
  std::string device;
  bool strided = true;
  const auto look_at = [&](const Tensor& tensor) {
    if (!strided) return;
    int32_t type = 0, layout = 0;
    OPWHEEL_SHIM(aoti_torch_get_device_type(tensor.handle(), &type));
    OPWHEEL_SHIM(aoti_torch_get_layout(tensor.handle(), &layout));
    strided = layout == aoti_torch_layout_strided();
    if (!strided || device.empty()) device = device_name(type, -1);
  };
  const auto look = [&]<std::size_t I> {
    ::opwheel::detail::Unboxed<Op::schema.arguments[I].kind> argument(stack[I]);  // owns it, whatever it is
    each_tensor(argument.get(), look_at);
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (look.template operator()<I>(), ...);
  }(std::make_index_sequence<Op::schema.argument_count>{});
  fail(Name::value, "::", Op::schema.name, " has no kernel for ", device, " tensors",
       strided ? ": load the library of a backend for that device, one that was built for this schema"
               : " that are not strided (sparse, mkldnn): convert them with .to_dense()",
       " (OPWHEEL-E001)");
}

template <class Name, class... Operators>
void implement_fallback(StableLibrary& library, OperatorList<Operators...>) {
  (library.impl(std::string(Operators::schema.name).c_str(), &no_backend<Name, Operators>), ...);
}

// Ended by a null pointer.
template <class... Operators>
const char* const* schema_texts(OperatorList<Operators...>) {
  static const char* const texts[] = {Operators::schema_text..., nullptr};
  return texts;
}

}  // namespace opwheel::schema_library

// The registry reads all schemas back with the C function.
#define OPWHEEL_DETAIL_SCHEMA_LIBRARY(library, Listed)                                       \
  namespace {                                                                                \
  struct library##_namespace {                                                               \
    static constexpr const char* value = #library;                                           \
  };                                                                                         \
  }                                                                                          \
  STABLE_TORCH_LIBRARY(library, m) { ::opwheel::schema_library::define(m, Listed()); }       \
  STABLE_TORCH_LIBRARY_IMPL(library, CompositeExplicitAutograd, m) {                         \
    ::opwheel::schema_library::implement_fallback<library##_namespace>(m, Listed());         \
  }                                                                                          \
  extern "C" __attribute__((visibility("default"))) const char* const* library##_schemas() { \
    return ::opwheel::schema_library::schema_texts(Listed());                                \
  }

#define OPWHEEL_SCHEMA_LIBRARY(library, LIST) \
  OPWHEEL_DECLARE_OPERATORS(library, LIST)    \
  OPWHEEL_DETAIL_SCHEMA_LIBRARY(library, library::op::Operators)

// For a library whose operators no functor computes, and for one with both lists.
#define OPWHEEL_KERNEL_SCHEMA_LIBRARY(library, KERNELS) \
  OPWHEEL_DECLARE_KERNELS(library, KERNELS)             \
  OPWHEEL_DETAIL_SCHEMA_LIBRARY(library, library::op::Kernels)
#define OPWHEEL_SCHEMA_LIBRARY_WITH_KERNELS(library, LIST, KERNELS) \
  OPWHEEL_DECLARE_OPERATORS(library, LIST)                          \
  OPWHEEL_DECLARE_KERNELS(library, KERNELS)                         \
  OPWHEEL_JOIN_LISTS(library)                                       \
  OPWHEEL_DETAIL_SCHEMA_LIBRARY(library, library::op::Everything)
