// What has to be done and asked before an argument is overwritten.
#pragma once

#include <ATen/core/Tensor.h>

#include "operator.h"

namespace opwheel::autograd {

// Throws what PyTorch would find out after the kernel has written; by then the data is gone.
void check_may_be_overwritten(const Operator& op, const at::Tensor& target);

// Throws if the tensor cannot be kept for a gradient, which PyTorch would find out too late as well.
void check_may_be_kept(const Operator& op, int argument, const at::Tensor& tensor);

// Whether given, or its history, may change when target is overwritten; also where that cannot be told. Other parts of
// one storage count: after a write to one view PyTorch refuses to look at some others. Different storages over the same
// memory come from other libraries. Wrappers of torch.func have no storage.
bool may_share_memory(const at::Tensor& target, const at::Tensor& given);

}  // namespace opwheel::autograd
