// Registers all kernels when the library is opened. The runtime ends the process when an operator is registered twice,
// so what another copy or a selective build has registered already is left as it is.
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>

#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels.h"
#include "muladd/operators.h"

namespace muladd_executorch {
namespace {

using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;
using muladd::ArgumentKind;

template <ArgumentKind kind>
using Argument = std::conditional_t<kind == ArgumentKind::number, double,
                                    std::conditional_t<kind == ArgumentKind::mutable_tensor, Tensor&, const Tensor&>>;

template <class Op, std::size_t... I>
auto signature(std::index_sequence<I...>)
    -> Tensor& (*)(KernelRuntimeContext&, Argument<Op::schema.arguments[I].kind>...);

template <class Op, class Kernel>
constexpr bool fits(Kernel*) {
  return std::is_same_v<Kernel*, decltype(signature<Op>(std::make_index_sequence<Op::schema.argument_count>{}))>;
}

// The runtime's own function for this question logs an error when the answer is no.
bool is_registered(std::string_view name) {
  for (const executorch::runtime::Kernel& kernel : executorch::runtime::get_registered_kernels()) {
    if (kernel.name_ == name) return true;
  }
  return false;
}

// An operator of the catalogue, its name in the runtime and its kernel.
#define MULADD_KERNEL(identifier, text)                                                                          \
  static_assert(muladd::op::identifier::schema.name == text && fits<muladd::op::identifier>(native::identifier), \
                "this kernel does not fit the operator's schema in the catalogue");                              \
  if (!is_registered("muladd::" text)) {                                                                         \
    EXECUTORCH_LIBRARY(muladd, text, native::identifier);                                                        \
  }

bool register_kernels() {
  MULADD_KERNEL(muladd_out, "muladd.out")
  MULADD_KERNEL(fma_out, "fma.out")
  MULADD_KERNEL(mul_out, "mul.out")
  MULADD_KERNEL(add_out, "add.out")
  MULADD_KERNEL(scale_out, "scale.out")
  return true;
}

[[maybe_unused]] const bool are_registered = register_kernels();

}  // namespace
}  // namespace muladd_executorch
