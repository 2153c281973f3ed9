// The device code. It is compiled once for each dtype, with -DMULADD_SYCL_DTYPE=float32 and so on, into an image of its
// own, so that a GPU without float64 or float16 runs the others.
#include "kernel_list.h"
#include "opwheel/xpu/device/strided.h"

namespace muladd::xpu {

using Own = element::MULADD_SYCL_DTYPE;

// Every operand lies densely in the image's own dtype, aligned to 16 bytes: the widest load of one work-item.
template <int outputs, int inputs, class F>
void dense(void* const (&data)[kOperands], int64_t numel, F f) {
  using Storage = Own::Storage;
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
      one<Own, outputs, inputs>(
          f, [&](int k) { return Own::load(in[k].values[j]); },
          [&](int k, Storage value) { out[k].values[j] = value; });
    }
    for (int k = 0; k < outputs; ++k) static_cast<Vector*>(data[k])[i] = out[k];
  }
  for (int64_t i = vectors * width + first; i < numel; i += step) {
    one<Own, outputs, inputs>(
        f, [&](int k) { return Own::load(static_cast<const Storage*>(data[kOutputs + k])[i]); },
        [&](int k, Storage value) { static_cast<Storage*>(data[k])[i] = value; });
  }
}

}  // namespace muladd::xpu

// Host code launches them with these arguments, in this order (launch.h).
#define MULADD_SYCL_DEFINE(name, Functor, outputs, inputs)                                                 \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void \
  name##_dense(void* out0, void* out1, void* in0, void* in1, void* in2, int64_t numel,                     \
               muladd::Functor<muladd::xpu::Own::Compute> functor) {                                       \
    muladd::xpu::dense<outputs, inputs>({out0, out1, in0, in1, in2}, numel, functor);                      \
  }                                                                                                        \
  OPWHEEL_XPU_STRIDED(name##_strided, muladd::xpu::Own, muladd::Functor, outputs, inputs)
MULADD_SYCL_KERNELS(MULADD_SYCL_DEFINE)
