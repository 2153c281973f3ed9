// The schema library: defines the catalogue's operators and nothing else, so that programs without Python find them.
#include <torch/csrc/stable/library.h>

#include <string>

#include "muladd/abi.h"
#include "muladd/library.h"
#include "muladd/operators.h"

namespace {

using muladd::op::Catalogue;
using muladd::op::List;
using torch::stable::detail::StableLibrary;

template <class... Operators>
void define(StableLibrary& library, List<Operators...>) {
  (library.def(Operators::schema_text), ...);
}

// What runs where no backend has registered a kernel. In Python a kernel that knows the installed backends comes first.
template <class Op>
void no_backend(StableIValue* stack, uint64_t, uint64_t) {
  std::string device;
  bool strided = true;
  for (int i = 0; i < Op::schema.argument_count; ++i) {
    if (Op::schema.arguments[i].kind == muladd::ArgumentKind::number) continue;
    const muladd::Tensor tensor(torch::stable::detail::to<AtenTensorHandle>(stack[i]));
    if (!strided) continue;
    int32_t type = 0, layout = 0;
    MULADD_SHIM(aoti_torch_get_device_type(tensor.handle(), &type));
    MULADD_SHIM(aoti_torch_get_layout(tensor.handle(), &layout));
    strided = layout == aoti_torch_layout_strided();
    if (!strided || device.empty()) device = muladd::device_name(type, -1);
  }
  muladd::fail("muladd::", Op::schema.name, " has no kernel for ", device, " tensors",
               strided ? ": load the library of a backend for that device"
                       : " that are not strided (sparse, mkldnn): convert them with .to_dense()",
               " (MULADD-E001)");
}

template <class... Operators>
void implement_default(StableLibrary& library, List<Operators...>) {
  (library.impl(std::string(Operators::schema.name).c_str(), &no_backend<Operators>), ...);
}

template <class... Operators>
const char* const* schema_texts(List<Operators...>) {
  static const char* const texts[] = {Operators::schema_text..., nullptr};
  return texts;
}

}  // namespace

STABLE_TORCH_LIBRARY(muladd, m) { define(m, Catalogue{}); }

STABLE_TORCH_LIBRARY_IMPL(muladd, CompositeExplicitAutograd, m) { implement_default(m, Catalogue{}); }

extern "C" __attribute__((visibility("default"))) int32_t muladd_abi_version() { return MULADD_ABI_VERSION; }

// The schemas of the whole catalogue, ended by a null pointer.
extern "C" __attribute__((visibility("default"))) const char* const* muladd_schemas() {
  return schema_texts(Catalogue{});
}
