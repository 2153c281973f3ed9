// Registers all kernels when the library is opened. The runtime ends the process when an operator is registered twice,
// so what another copy or a selective build has registered already is left as it is.
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>

#include <string>
#include <string_view>

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

template <class Op>
void register_operator() {
  if constexpr (is_out_variant<Op>()) {
    static const std::string name = "muladd::" + std::string(Op::schema.name);  // the runtime keeps the pointer
    if (is_registered(name)) return;
    using Boxed = executorch::extension::WrapUnboxedIntoFunctor<
        executorch::extension::CompileTimeFunctionPointer<decltype(Kernel<Op>::call), Kernel<Op>::call>>;
    (void)executorch::runtime::register_kernel(executorch::runtime::Kernel(name.c_str(), Boxed::call));
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
