// Registers all kernels when the library is opened. The runtime ends the process when an operator is registered twice,
// so what another copy or a selective build has registered already is left as it is.
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "kernels.h"

namespace muladd_executorch {
namespace {

// The runtime's own function for this question logs an error when the answer is no.
bool is_registered(std::string_view name) {
  for (const executorch::runtime::Kernel& kernel : executorch::runtime::get_registered_kernels()) {
    if (kernel.name_ == name) return true;
  }
  return false;
}

// "muladd::fma.out": the runtime keeps the pointer, and wants it as a constant.
constexpr std::string_view kNamespace = "muladd::";

template <class Op, class Indices = std::make_index_sequence<kNamespace.size() + Op::schema.name.size()>>
struct FullName;

template <class Op, std::size_t... I>
struct FullName<Op, std::index_sequence<I...>> {
  static constexpr char letter(std::size_t i) {
    return i < kNamespace.size() ? kNamespace[i] : Op::schema.name[i - kNamespace.size()];
  }
  static constexpr char text[] = {letter(I)..., '\0'};
};

template <class Op>
void register_operator() {
  if constexpr (is_out_variant<Op>()) {
    constexpr const char* name = FullName<Op>::text;
    if (is_registered(name)) return;
    using executorch::extension::make_boxed_kernel;
    const auto kernel = make_boxed_kernel(name, EXECUTORCH_FN(Kernel<Op>::call, FullName<Op>::text));
    (void)executorch::runtime::register_kernel(kernel);
  }
}

template <class... Operators>
bool register_all(opwheel::OperatorList<Operators...>) {
  (register_operator<Operators>(), ...);
  return true;
}

[[maybe_unused]] const bool are_registered = register_all(muladd::op::Operators());

}  // namespace
}  // namespace muladd_executorch
