// PyTorch's names for a copy, for a simulated device that can copy in both directions.
#pragma once

#include <ATen/ATen.h>

namespace simulated {

using Copy = at::Tensor& (*)(at::Tensor& self, const at::Tensor& source, bool non_blocking);

template <Copy copy>
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::Tensor self = target;
  return copy(self, source, non_blocking);
}

template <Copy copy>
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (target.sizes() != source.sizes()) target.resize_(source.sizes());
  return copy_from<copy>(source, target, false);
}

}  // namespace simulated
