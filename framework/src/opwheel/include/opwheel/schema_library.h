// Everything in a schema library: defines a catalogue's operators and nothing else, so that programs without Python
// find them. A schema library has one source file:
//
//     #include "opwheel/schema_library.h"
//     #include "waves/operators.h"
//
//     OPWHEEL_SCHEMA_LIBRARY(waves, waves::op::Catalogue, 1)
//
// A catalogue is a template instance whose arguments are the operators, such as std::tuple<...>; an operator is a type
// with `schema_text` and `schema` (muladd/operators.h).
#pragma once

#include <torch/csrc/stable/library.h>

#include <string>

#include "opwheel/registration.h"
#include "opwheel/schema.h"

namespace opwheel::schema_library {

using torch::stable::detail::StableLibrary;

template <template <class...> class List, class... Operators>
void define(StableLibrary& library, const List<Operators...>*) {
  (library.def(Operators::schema_text), ...);
}

// What runs where no backend has registered a kernel. In Python a kernel that knows the installed backends comes first.
template <class Name, class Op>
void no_backend(StableIValue* stack, uint64_t, uint64_t) {
  std::string device;
  bool strided = true;
  for (int i = 0; i < Op::schema.argument_count; ++i) {
    if (Op::schema.arguments[i].kind == ArgumentKind::number) continue;
    const Tensor tensor(torch::stable::detail::to<AtenTensorHandle>(stack[i]));
    if (!strided) continue;
    int32_t type = 0, layout = 0;
    OPWHEEL_SHIM(aoti_torch_get_device_type(tensor.handle(), &type));
    OPWHEEL_SHIM(aoti_torch_get_layout(tensor.handle(), &layout));
    strided = layout == aoti_torch_layout_strided();
    if (!strided || device.empty()) device = device_name(type, -1);
  }
  fail(Name::value, "::", Op::schema.name, " has no kernel for ", device, " tensors",
       strided ? ": load the library of a backend for that device"
               : " that are not strided (sparse, mkldnn): convert them with .to_dense()",
       " (OPWHEEL-E001)");
}

template <class Name, template <class...> class List, class... Operators>
void implement_default(StableLibrary& library, const List<Operators...>*) {
  (library.impl(std::string(Operators::schema.name).c_str(), &no_backend<Name, Operators>), ...);
}

// Ended by a null pointer.
template <template <class...> class List, class... Operators>
const char* const* schema_texts(const List<Operators...>*) {
  static const char* const texts[] = {Operators::schema_text..., nullptr};
  return texts;
}

}  // namespace opwheel::schema_library

// The registry looks for the two C functions: the number that backends are built against, and all schemas.
#define OPWHEEL_SCHEMA_LIBRARY(name, Catalogue, abi)                                              \
  namespace {                                                                                    \
  struct name##_namespace {                                                                      \
    static constexpr const char* value = #name;                                                  \
  };                                                                                             \
  constexpr const Catalogue* name##_catalogue = nullptr;                                         \
  }                                                                                              \
  STABLE_TORCH_LIBRARY(name, m) { ::opwheel::schema_library::define(m, name##_catalogue); }       \
  STABLE_TORCH_LIBRARY_IMPL(name, CompositeExplicitAutograd, m) {                                \
    ::opwheel::schema_library::implement_default<name##_namespace>(m, name##_catalogue);          \
  }                                                                                              \
  extern "C" __attribute__((visibility("default"))) int32_t name##_abi_version() { return abi; } \
  extern "C" __attribute__((visibility("default"))) const char* const* name##_schemas() {        \
    return ::opwheel::schema_library::schema_texts(name##_catalogue);                             \
  }
