#include "kernel_errors.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <string>

#include "wanted_memory.h"

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
  const std::optional<WantedMemory> wanted = wanted_memory(message);
  if (!wanted) return;
  // PyTorch words the error: the same allocation is tried here.
  at::empty({wanted->bytes}, at::TensorOptions().dtype(at::kByte).device(wanted->device_type + wanted->index));
  // There is memory now: the tensor was one of several, or some memory has become free.
  if (wanted->device_type != "cpu") {
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "out of memory: " + message);
  }
}

}  // namespace opwheel::autograd
