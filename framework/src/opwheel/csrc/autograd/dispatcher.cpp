// What kernels on the C++ SDK need of PyTorch's dispatcher to call other operators (opwheel/call.h), and PyTorch's C
// functions do not offer: the schemas, and calls below Autograd and Autocast.
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>

namespace opwheel {
namespace {

// The text, for as long as the process lives.
const char* keep(std::string text) {
  static std::mutex mutex;
  static auto* const kept = new std::set<std::string>;
  const std::scoped_lock lock(mutex);
  return kept->insert(std::move(text)).first->c_str();
}

}  // namespace
}  // namespace opwheel

extern "C" {

// The schema of an operator, "aten::sum.dim_IntList"; null where nobody has defined one.
__attribute__((visibility("default"))) const char* opwheel_dispatcher_schema(const char* name) {
  try {
    const std::string text(name);
    const size_t dot = std::min(text.find('.'), text.size());
    const auto op = c10::Dispatcher::singleton().findSchema(
        {text.substr(0, dot), dot < text.size() ? text.substr(dot + 1) : std::string()});
    if (!op) return nullptr;
    std::ostringstream schema;
    schema << op->schema();
    return opwheel::keep(schema.str());
  } catch (...) {  // there is no memory
    return nullptr;
  }
}

// torch_call_dispatcher() as a kernel of PyTorch's calls: Autograd is not asked and no version counter changes. Nor is
// Autocast, which would give a kernel results of another dtype than it asked for.
//
// kOtherSchema: the operator has not as many arguments, because it was defined anew; it was not called.
__attribute__((visibility("default"))) AOTITorchError opwheel_dispatcher_call(const char* name, const char* overload,
                                                                              StableIValue* stack,
                                                                              uint64_t argument_count,
                                                                              uint64_t built_with) {
  constexpr AOTITorchError kOtherSchema = 2;
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op || op->schema().arguments().size() != argument_count) return kOtherSchema;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  return torch_call_dispatcher(name, overload, stack, built_with);
}
}
