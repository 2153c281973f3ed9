// Registers the selected kernels when the program starts. Made from muladd-executorch's template.
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/event_tracer_hooks.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/profiler.h>

#include <cstring>

#include "${fn_header}"

// The generated code below speaks of the runtime's types without their namespace.
namespace muladd_executorch_selected {
namespace {

using namespace executorch::runtime;

const Kernel kernels[] = {
    ${unboxed_kernels}
};

// The runtime ends the process when an operator is registered twice: what is there already stays.
bool is_registered(const Kernel& kernel) {
  for (const Kernel& other : get_registered_kernels()) {
    if (std::strcmp(other.name_, kernel.name_) == 0 && other.kernel_key_ == kernel.kernel_key_) return true;
  }
  return false;
}

[[maybe_unused]] const bool are_registered = [] {
  for (const Kernel& kernel : kernels) {
    if (!is_registered(kernel) && register_kernel(kernel) != Error::Ok) return false;
  }
  return true;
}();

}  // namespace
}  // namespace muladd_executorch_selected
