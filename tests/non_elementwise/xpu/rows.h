// Row operators of tests/non_elementwise in SYCL: what the device runs for each row. Device and host compile it.
#pragma once

#include <cmath>

#include "opwheel/xpu/device/rows.h"

namespace waves_xpu {

namespace xpu = opwheel::xpu;

template <class E>
struct RmsNorm {
  static constexpr char name[] = "rms_norm";
  using Acc = typename E::Compute;
  using Storage = typename E::Storage;
  const Storage *x, *weight;
  Storage* y;
  Acc* rstd;
  int64_t length;
  Acc eps;

  void operator()(int64_t i) const {
    const Storage* row = x + i * length;
    const Acc squares = xpu::sum<Acc>(length, [&](int64_t k) { return E::load(row[k]) * E::load(row[k]); });
    const Acc r = 1 / sycl::sqrt(squares / Acc(length) + eps);
    xpu::for_each(length, [&](int64_t k) { y[i * length + k] = E::store(E::load(row[k]) * r * E::load(weight[k])); });
    xpu::for_each(1, [&](int64_t) { rstd[i] = r; });
  }
};

template <class E>
struct RmsNormBackward {
  static constexpr char name[] = "rms_norm_backward";
  using Acc = typename E::Compute;
  using Storage = typename E::Storage;
  const Storage *grad, *x, *weight;
  const Acc* rstd;
  Storage* dx;
  int64_t length;

  void operator()(int64_t i) const {
    const Storage *row = x + i * length, *grads = grad + i * length;
    const Acc r = rstd[i];
    const auto weighted = [&](int64_t k) { return E::load(grads[k]) * E::load(weight[k]); };
    const Acc inner = xpu::sum<Acc>(length, [&](int64_t k) { return weighted(k) * E::load(row[k]); }) / Acc(length);
    xpu::for_each(length, [&](int64_t k) {
      dx[i * length + k] = E::store(r * weighted(k) - E::load(row[k]) * r * r * r * inner);
    });
  }
};

// A "row" is a column of x.
template <class E>
struct RmsNormWeightBackward {
  static constexpr char name[] = "rms_norm_weight_backward";
  using Acc = typename E::Compute;
  using Storage = typename E::Storage;
  const Storage *grad, *x;
  const Acc* rstd;
  Storage* dweight;
  int64_t rows, length;

  void operator()(int64_t k) const {
    const Acc total = xpu::sum<Acc>(
        rows, [&](int64_t i) { return E::load(grad[i * length + k]) * E::load(x[i * length + k]) * rstd[i]; });
    xpu::for_each(1, [&](int64_t) { dweight[k] = E::store(total); });
  }
};

template <class E>
struct QuantizeRowwise {
  static constexpr char name[] = "quantize_rowwise";
  const typename E::Storage* x;
  int8_t* q;
  float* scale;
  int64_t length;

  void operator()(int64_t i, xpu::Scratch<float> row) const {
    xpu::for_each(length, [&](int64_t k) { row[k] = float(E::load(x[i * length + k])); });
    const float s = xpu::maximum<float>(length, 0.0f, [&](int64_t k) { return sycl::fabs(row[k]); }) / 127;
    const float divisor = sycl::fmax(s, 1e-12f);
    xpu::for_each(length, [&](int64_t k) { q[i * length + k] = int8_t(sycl::rint(row[k] / divisor)); });
    xpu::for_each(1, [&](int64_t) { scale[i] = s; });
  }
};

// The elements of a row are `inner` apart.
template <class E>
struct Softmax {
  static constexpr char name[] = "softmax";
  using Acc = typename E::Compute;
  const typename E::Storage* x;
  typename E::Storage* y;
  int64_t length, inner;

  void operator()(int64_t i, xpu::Scratch<Acc> row) const {
    const int64_t start = i / inner * length * inner + i % inner;
    xpu::for_each(length, [&](int64_t k) { row[k] = E::load(x[start + k * inner]); });
    const Acc top = xpu::maximum<Acc>(length, Acc(-INFINITY), [&](int64_t k) { return row[k]; });
    xpu::for_each(length, [&](int64_t k) { row[k] = sycl::exp(row[k] - top); });
    const Acc total = xpu::sum<Acc>(length, [&](int64_t k) { return row[k]; });
    xpu::for_each(length, [&](int64_t k) { y[start + k * inner] = E::store(row[k] / total); });
  }
};

template <class E>
struct SoftmaxBackward {
  static constexpr char name[] = "softmax_backward";
  using Acc = typename E::Compute;
  using Storage = typename E::Storage;
  const Storage *grad, *y;
  Storage* dx;
  int64_t length, inner;

  void operator()(int64_t i) const {
    const int64_t start = i / inner * length * inner + i % inner;
    const auto grads = [&](int64_t k) { return E::load(grad[start + k * inner]); };
    const auto result = [&](int64_t k) { return E::load(y[start + k * inner]); };
    const Acc total = xpu::sum<Acc>(length, [&](int64_t k) { return grads(k) * result(k); });
    xpu::for_each(length, [&](int64_t k) { dx[start + k * inner] = E::store((grads(k) - total) * result(k)); });
  }
};

}  // namespace waves_xpu
