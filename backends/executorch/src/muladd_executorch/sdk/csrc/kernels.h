// The kernels of the out variants among muladd's operators. The code that ExecuTorch generates from custom_ops.yaml
// includes this header and calls them by these names: "kernel_name: muladd_executorch::muladd_out" stands for
// muladd_executorch::native::muladd_out.
#pragma once

#include <executorch/runtime/kernel/kernel_includes.h>

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "muladd/operators.h"
#include "opwheel/operators.h"

OPWHEEL_DECLARE_OPERATORS(muladd, MULADD_OPERATORS)

namespace muladd_executorch {

using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;

template <opwheel::ArgumentKind kind>
using Argument =
    std::conditional_t<kind == opwheel::ArgumentKind::number, double,
                       std::conditional_t<kind == opwheel::ArgumentKind::mutable_tensor, Tensor&, const Tensor&>>;

// Exporting replaces every operator by its out variant, so a program calls no other.
template <class Op>
constexpr bool is_out_variant() {
  constexpr std::string_view name = Op::schema.name, suffix = ".out";
  return name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
}

// The kernel of an out variant, with the signature that follows from its schema; kernels.cpp has its instances.
template <class Op, class Arguments = std::make_index_sequence<Op::schema.argument_count>>
struct Kernel;

template <class Op, std::size_t... I>
struct Kernel<Op, std::index_sequence<I...>> {
  static Tensor& call(KernelRuntimeContext& context, Argument<Op::schema.arguments[I].kind>... arguments);
};

template <class Op>
constexpr auto kernel_of() {
  if constexpr (is_out_variant<Op>()) {
    return &Kernel<Op>::call;
  } else {
    return nullptr;
  }
}

namespace native {

#define MULADD_EXECUTORCH_NAME(identifier, functor, text) \
  inline constexpr auto identifier = kernel_of<muladd::op::identifier>();
MULADD_OPERATORS(MULADD_EXECUTORCH_NAME, MULADD_EXECUTORCH_NAME)
#undef MULADD_EXECUTORCH_NAME

}  // namespace native
}  // namespace muladd_executorch
