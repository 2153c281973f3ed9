// The schema library: defines the catalogue's operators and nothing else, so that programs without Python find them.
#include <torch/csrc/stable/library.h>

#include <string>

#include "muladd/abi.h"
#include "muladd/operators.h"
#include "muladd/library.h"

namespace {

using muladd::op::Catalogue;
using muladd::op::List;
using torch::stable::detail::StableLibrary;

// PyTorch compiles an operator that hands a mutable argument back only if its overload carries a tag (torch.Tag.out,
// torch.Tag.inplace), and tags cannot be given through the stable ABI before torch 2.12. Those overloads are therefore
// defined by whoever loads this library: the Python package with the tags, a program without Python without them.
template <class... Operators>
void define(StableLibrary& library, bool returning_argument, List<Operators...>) {
  ((Operators::schema.returns_argument == returning_argument ? void(library.def(Operators::schema_text)) : void()), ...);
}

// What runs where no backend has registered a kernel. In Python a kernel with a better message comes before it.
template <class Op>
void no_backend(StableIValue* stack, uint64_t, uint64_t) {
  std::string device;
  bool named = false;
  for (int i = 0; i < Op::schema.argument_count; ++i) {
    if (Op::schema.arguments[i].kind == muladd::ArgumentKind::number) continue;
    const muladd::Tensor tensor(torch::stable::detail::to<AtenTensorHandle>(stack[i]));
    if (!named) device = muladd::TensorInfo(tensor).device.name();
    named = true;
  }
  muladd::fail("muladd::", Op::schema.name, " has no kernel for ", device,
               " tensors of this layout (MULADD-E001): load the library of a backend for that device after the schema "
               "library");
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

STABLE_TORCH_LIBRARY(muladd, m) { define(m, /*returning_argument=*/false, Catalogue{}); }

STABLE_TORCH_LIBRARY_IMPL(muladd, CompositeExplicitAutograd, m) { implement_default(m, Catalogue{}); }

extern "C" __attribute__((visibility("default"))) int32_t muladd_abi_version() { return MULADD_ABI_VERSION; }

// The schemas of the whole catalogue, ended by a null pointer.
extern "C" __attribute__((visibility("default"))) const char* const* muladd_schemas() {
  return schema_texts(Catalogue{});
}
