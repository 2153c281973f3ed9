// What a device runs for each row, in SYCL: device and host compile it.
#pragma once

#include <cmath>

#include "opwheel/xpu/device/rows.h"

namespace waves_xpu {

namespace xpu = opwheel::xpu;

template <class E>
struct Softmax {
  static constexpr char name[] = "softmax";
  using Acc = typename E::Compute;
  const typename E::Storage* x;
  typename E::Storage* y;
  int64_t length;

  void operator()(int64_t row, xpu::Scratch<Acc> exps) const {
    const auto* in = x + row * length;
    const Acc top = xpu::maximum<Acc>(length, Acc(-INFINITY), [&](int64_t k) { return E::load(in[k]); });
    xpu::for_each(length, [&](int64_t k) { exps[k] = sycl::exp(E::load(in[k]) - top); });
    const Acc total = xpu::sum<Acc>(length, [&](int64_t k) { return exps[k]; });
    xpu::for_each(length, [&](int64_t k) { y[row * length + k] = E::store(exps[k] / total); });
  }
};

}  // namespace waves_xpu
