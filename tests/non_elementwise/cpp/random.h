// A random kernel: it needs PyTorch's stable ABI of 2.13 or later, which has generators.
#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <array>
#include <optional>

#include "opwheel/kernels.h"

namespace waves {

inline std::array<opwheel::Tensor, 2> dropout(const opwheel::Tensor& given, double p,
                                              const std::optional<opwheel::Generator>& generator) {
  using namespace opwheel;
  check(given, "x").on_cpu().dtype(floating);
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x), mask = new_empty(sizes_of(x), ScalarType::Bool, device_of(x));
  AtenGeneratorHandle drawn_from = generator ? generator->get() : nullptr;
  OPWHEEL_SHIM(aoti_torch_cpu_bernoulli__float(mask.handle(), 1 - p, generator ? &drawn_from : nullptr));
  dispatch(dtype_of(x), [&]<class T>() {
    using Acc = Accumulate<T>;
    const int64_t count = TensorInfo(x).numel;
    for (int64_t i = 0; i < count; ++i) {
      data<T>(y)[i] = T(data<bool>(mask)[i] ? Acc(data<T>(x)[i]) / Acc(1 - p) : Acc(0));
    }
  });
  return {std::move(y), std::move(mask)};
}

}  // namespace waves
