// Device code for one element of an operator, and a kernel for operands of any strides and dtypes made of it.
#pragma once

#include <cstdint>
#include <sycl/sycl.hpp>
#include <type_traits>

#include "element.h"
#include "muladd/arithmetic.h"
#include "walk.h"

namespace opwheel::xpu {

// Results and arguments of a functor by number, whatever it returns and takes.
template <class C>
C result(C value, int) {
  return value;
}
template <class C>
C result(Pair<C> value, int i) {
  return i == 0 ? value.first : value.second;
}

template <class F, class C>
auto apply(F f, const C (&x)[kInputs]) {
  if constexpr (std::is_invocable_v<F, C>) {
    return f(x[0]);
  } else if constexpr (std::is_invocable_v<F, C, C>) {
    return f(x[0], x[1]);
  } else {
    return f(x[0], x[1], x[2]);
  }
}

// One element: load(k) reads input k, store(k, value) writes output k, which is rounded to the dtype `Own`.
template <class Own, int outputs, int inputs, class F, class Load, class Store>
void one(F f, Load load, Store store) {
  typename Own::Compute x[kInputs];
  for (int k = 0; k < inputs; ++k) x[k] = load(k);
  const auto value = apply(f, x);
  for (int k = 0; k < outputs; ++k) store(k, Own::store(result(value, k)));
}

// A work-item computes every step-th element, beginning with its own number.
struct Range {
  int64_t first, step;
};

inline Range work_items() {
  const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<1>();
  return {static_cast<int64_t>(item.get_global_linear_id()), static_cast<int64_t>(item.get_global_range(0))};
}

template <class Index>
void offsets(const Walk& walk, Index rest, int64_t (&offset)[kOperands]) {
  for (int k = 0; k < kOperands; ++k) offset[k] = 0;
  for (int d = 0; d < walk.ndim; ++d) {
    const Index size = static_cast<Index>(walk.sizes[d]);
    const Index next = rest / size;
    const int64_t index = static_cast<int64_t>(rest - next * size);
    for (int k = 0; k < kOperands; ++k) offset[k] += index * walk.strides[d][k];
    rest = next;
  }
}

// Outputs of the dtype `Own` (opwheel/xpu/device/element.h), inputs of any dtype, any strides.
template <class Own, int outputs, int inputs, class F>
void strided(void* const (&data)[kOperands], const Walk& walk, F f) {
  using Storage = typename Own::Storage;
  const auto [first, step] = work_items();
  const bool is_short = walk.numel <= UINT32_MAX;  // a 64-bit division is many times slower
  for (int64_t i = first; i < walk.numel; i += step) {
    int64_t offset[kOperands];
    is_short ? offsets(walk, static_cast<uint32_t>(i), offset) : offsets(walk, static_cast<uint64_t>(i), offset);
    const auto address = [&](int operand) { return static_cast<char*>(data[operand]) + offset[operand]; };
    one<Own, outputs, inputs>(
        f, [&](int k) { return element::load_as<Own>(walk.codes[kOutputs + k], address(kOutputs + k)); },
        [&](int k, Storage value) { *reinterpret_cast<Storage*>(address(k)) = value; });
  }
}

}  // namespace opwheel::xpu

// Defines `name` as a kernel that opwheel::xpu::launch_strided launches.
#define OPWHEEL_XPU_STRIDED(name, Own, Functor, outputs, inputs)                                                 \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void name( \
      void* out0, void* out1, void* in0, void* in1, void* in2, opwheel::xpu::Walk walk,                          \
      Functor<Own::Compute> functor) {                                                                           \
    opwheel::xpu::strided<Own, outputs, inputs>({out0, out1, in0, in1, in2}, walk, functor);                     \
  }
