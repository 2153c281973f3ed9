// The device code. It is compiled once for each dtype, with -DMULADD_SYCL_DTYPE=float32 and so on, into an image of its
// own, so that a GPU without float64 or float16 runs the others.
#include <sycl/sycl.hpp>

#include "element.h"
#include "kernel_list.h"
#include "muladd/arithmetic.h"
#include "walk.h"

namespace muladd::xpu {

using Own = element::MULADD_SYCL_DTYPE;
using Storage = Own::Storage;
using Compute = Own::Compute;

// Results and arguments of a functor by number, whatever it returns and takes.
inline Compute result(Compute value, int) { return value; }
inline Compute result(Pair<Compute> value, int i) { return i == 0 ? value.first : value.second; }

template <class F>
auto apply(F f, const Compute (&x)[kInputs]) {
  if constexpr (std::is_invocable_v<F, Compute>) {
    return f(x[0]);
  } else if constexpr (std::is_invocable_v<F, Compute, Compute>) {
    return f(x[0], x[1]);
  } else {
    return f(x[0], x[1], x[2]);
  }
}

struct Range {
  int64_t first, step;
};

inline Range work_items() {
  const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<1>();
  return {static_cast<int64_t>(item.get_global_linear_id()), static_cast<int64_t>(item.get_global_range(0))};
}

// One element: load(k) reads input k, store(k, value) writes output k.
template <int outputs, int inputs, class F, class Load, class Store>
void one(F f, Load load, Store store) {
  Compute x[kInputs];
  for (int k = 0; k < inputs; ++k) x[k] = load(k);
  const auto value = apply(f, x);
  for (int k = 0; k < outputs; ++k) store(k, Own::store(result(value, k)));
}

// Every operand lies densely in the image's own dtype, aligned to 16 bytes: the widest load of one work-item.
template <int outputs, int inputs, class F>
void dense(void* const (&data)[kOperands], int64_t numel, F f) {
  constexpr int width = 16 / sizeof(Storage);
  struct alignas(16) Vector {
    Storage values[width];
  };
  const auto [first, step] = work_items();
  const int64_t vectors = numel / width;
  for (int64_t i = first; i < vectors; i += step) {
    Vector in[kInputs], out[kOutputs];
    for (int k = 0; k < inputs; ++k) in[k] = static_cast<const Vector*>(data[kOutputs + k])[i];
    for (int j = 0; j < width; ++j) {
      one<outputs, inputs>(
          f, [&](int k) { return Own::load(in[k].values[j]); },
          [&](int k, Storage value) { out[k].values[j] = value; });
    }
    for (int k = 0; k < outputs; ++k) static_cast<Vector*>(data[k])[i] = out[k];
  }
  for (int64_t i = vectors * width + first; i < numel; i += step) {
    one<outputs, inputs>(
        f, [&](int k) { return Own::load(static_cast<const Storage*>(data[kOutputs + k])[i]); },
        [&](int k, Storage value) { static_cast<Storage*>(data[k])[i] = value; });
  }
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

// Any strides, any dtypes of the inputs.
template <int outputs, int inputs, class F>
void strided(void* const (&data)[kOperands], const Walk& walk, F f) {
  const auto [first, step] = work_items();
  const bool is_short = walk.numel <= UINT32_MAX;  // a 64-bit division is many times slower
  for (int64_t i = first; i < walk.numel; i += step) {
    int64_t offset[kOperands];
    is_short ? offsets(walk, static_cast<uint32_t>(i), offset) : offsets(walk, static_cast<uint64_t>(i), offset);
    const auto address = [&](int operand) { return static_cast<char*>(data[operand]) + offset[operand]; };
    one<outputs, inputs>(
        f, [&](int k) { return element::load_as<Own>(walk.codes[kOutputs + k], address(kOutputs + k)); },
        [&](int k, Storage value) { *reinterpret_cast<Storage*>(address(k)) = value; });
  }
}

}  // namespace muladd::xpu

// Host code launches them with these arguments, in this order (launch.h).
#define MULADD_SYCL_DEFINE(name, Functor, outputs, inputs)                                                 \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void \
  name##_dense(void* out0, void* out1, void* in0, void* in1, void* in2, int64_t numel,                     \
               muladd::Functor<muladd::xpu::Compute> functor) {                                            \
    muladd::xpu::dense<outputs, inputs>({out0, out1, in0, in1, in2}, numel, functor);                      \
  }                                                                                                        \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void \
  name##_strided(void* out0, void* out1, void* in0, void* in1, void* in2, muladd::xpu::Walk walk,          \
                 muladd::Functor<muladd::xpu::Compute> functor) {                                          \
    muladd::xpu::strided<outputs, inputs>({out0, out1, in0, in1, in2}, walk, functor);                     \
  }
MULADD_SYCL_KERNELS(MULADD_SYCL_DEFINE)
