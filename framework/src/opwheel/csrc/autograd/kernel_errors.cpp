#include "kernel_errors.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <regex>
#include <string>

namespace opwheel::autograd {

void check_is_tensor(const Operator& op, const c10::IValue& value, int argument) {
  const c10::Argument& declared = op.schema().arguments()[argument];
  if (declared.type()->kind() != c10::TypeKind::TensorType) return;
  TORCH_CHECK_TYPE(value.isTensor() && value.toTensor().defined(), op.name, ": argument '", declared.name(),
                   "' is None, expected a torch.Tensor");
}

void raise_better(const std::exception& error) {
  const auto* with_backtrace = dynamic_cast<const c10::Error*>(&error);
  const std::string message = with_backtrace ? with_backtrace->what_without_backtrace() : error.what();
  if (message.rfind("[OPWHEEL:OOM]", 0) != 0) return;
  static const std::regex wanted(R"(\(bytes=(\d+) device=(\w+)((?::\d+)?)\)\s*$)");
  std::smatch found;
  if (!std::regex_search(message, found, wanted)) return;
  // PyTorch words the error: the same allocation is tried here.
  const std::string device = found[2].str() + found[3].str();
  at::empty({std::stoll(found[1].str())}, at::TensorOptions().dtype(at::kByte).device(device));
  // There is memory now: the tensor was one of several, or some memory has become free.
  if (found[2] != "cpu") throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "out of memory: " + message);
}

}  // namespace opwheel::autograd
