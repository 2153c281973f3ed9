// Device code for element-wise operators: kernels for contiguous operands and for operands of any strides and
// dtypes, made of a library's functors. A library's device code is compiled once for each dtype, into an image of its
// own, so that a GPU without float64 or float16 runs the others:
//
//     #include "waves/operators.h"
//     #include "opwheel/xpu/device/elementwise.h"
//     OPWHEEL_XPU_KERNELS(waves, WAVES_OPERATORS, DTYPE)  // with -DDTYPE=float32 and so on
#pragma once

#include <cstdint>
#include <sycl/sycl.hpp>

#include "opwheel/detail/offset_calculator.h"
#include "opwheel/detail/xpu/device/operand_dtypes.h"
#include "opwheel/functor.h"

// IWYU pragma: begin_exports
#include "opwheel/detail/xpu/device/element.h"
// IWYU pragma: end_exports

namespace opwheel::xpu {

// One element: load(k) reads input k, store(k, value) writes result k, which is rounded to the dtype `Own`.
template <class Own, class F, class Load, class Store>
void one(F functor, Load load, Store store) {
  using Traits = FunctorTraits<F>;
  typename Own::Compute inputs[Traits::kInputs], results[Traits::kOutputs];
  for (int k = 0; k < Traits::kInputs; ++k) inputs[k] = load(k);
  apply(functor, inputs, results);
  for (int k = 0; k < Traits::kOutputs; ++k) store(k, Own::store(results[k]));
}

// A work-item computes every step-th element, beginning with its own number.
struct Range {
  int64_t first, step;
};

inline Range work_items() {
  const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<1>();
  return {static_cast<int64_t>(item.get_global_linear_id()), static_cast<int64_t>(item.get_global_range(0))};
}

// Every operand is contiguous, of the image's own dtype and aligned to 16 bytes: the widest load of one work-item.
template <class Own, class F>
void dense(void* const (&data)[kMaxOperands], int64_t numel, F functor) {
  using Storage = typename Own::Storage;
  using Traits = FunctorTraits<F>;
  constexpr int width = 16 / sizeof(Storage);
  struct alignas(16) Vector {
    Storage values[width];
  };
  const auto [first, step] = work_items();
  const int64_t vectors = numel / width;
  for (int64_t i = first; i < vectors; i += step) {
    Vector in[Traits::kInputs], out[Traits::kOutputs];
    for (int k = 0; k < Traits::kInputs; ++k) in[k] = static_cast<const Vector*>(data[Traits::kOutputs + k])[i];
    for (int j = 0; j < width; ++j) {
      one<Own>(
          functor, [&](int k) { return Own::load(in[k].values[j]); },
          [&](int k, Storage value) { out[k].values[j] = value; });
    }
    for (int k = 0; k < Traits::kOutputs; ++k) static_cast<Vector*>(data[k])[i] = out[k];
  }
  for (int64_t i = vectors * width + first; i < numel; i += step) {
    one<Own>(
        functor, [&](int k) { return Own::load(static_cast<const Storage*>(data[Traits::kOutputs + k])[i]); },
        [&](int k, Storage value) { static_cast<Storage*>(data[k])[i] = value; });
  }
}

// Results of the dtype `Own`, inputs of any dtype, any strides.
template <class Own, class F, int kOperands>
void strided(void* const (&data)[kMaxOperands], uint32_t numel, const OffsetCalculator<kOperands>& place,
             const OperandDTypes& dtypes, F functor) {
  using Storage = typename Own::Storage;
  constexpr int kOutputs = FunctorTraits<F>::kOutputs;
  const auto [first, step] = work_items();
  for (int64_t i = first; i < numel; i += step) {
    uint32_t offsets[kOperands];
    place.get(static_cast<uint32_t>(i), offsets);
    const auto address = [&](int operand) { return static_cast<char*>(data[operand]) + offsets[operand]; };
    one<Own>(
        functor, [&](int k) { return load_as<Own>(dtypes.of[kOutputs + k], address(kOutputs + k)); },
        [&](int k, Storage value) { *reinterpret_cast<Storage*>(address(k)) = value; });
  }
}

}  // namespace opwheel::xpu

// Defines <operator>_dense and <operator>_strided for each operator of the list, to be launched by the host
// (opwheel/detail/xpu/launch.h).
#define OPWHEEL_XPU_KERNELS(library, LIST, dtype)                 \
  namespace library::xpu {                                        \
  using Own = ::opwheel::xpu::dtype;                              \
  LIST(OPWHEEL_DETAIL_XPU_KERNELS, OPWHEEL_DETAIL_NO_XPU_KERNELS) \
  }
#define OPWHEEL_DETAIL_XPU_KERNELS(identifier, Functor, text)                                                          \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void             \
  identifier##_dense(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, void* p6, void* p7, int64_t numel,    \
                     Functor<Own::Compute> functor) {                                                                  \
    ::opwheel::xpu::dense<Own>({p0, p1, p2, p3, p4, p5, p6, p7}, numel, functor);                                      \
  }                                                                                                                    \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void             \
  identifier##_strided(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, void* p6, void* p7, uint32_t numel, \
                       ::opwheel::OffsetCalculator<::opwheel::FunctorTraits<Functor<Own::Compute>>::kOperands> place,  \
                       ::opwheel::xpu::OperandDTypes dtypes, Functor<Own::Compute> functor) {                          \
    ::opwheel::xpu::strided<Own>({p0, p1, p2, p3, p4, p5, p6, p7}, numel, place, dtypes, functor);                     \
  }
#define OPWHEEL_DETAIL_NO_XPU_KERNELS(identifier, operator_, text)
