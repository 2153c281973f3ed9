// The device code. It is compiled once for each dtype, with -DDTYPE=float32 and so on, into an image of its own, so
// that a GPU without float64 or float16 runs the others. The reference kernels take any strides and dtypes; they are
// right, not fast: they divide their way from an element's number to its place in every operand.
#include "kernel_list.h"
#include "opwheel/xpu/device/strided.h"

using Own = muladd::xpu::element::DTYPE;

#define DEFINE(Functor, outputs, inputs) OPWHEEL_XPU_STRIDED(strided_##Functor, Own, muladd::Functor, outputs, inputs)
KERNELS(DEFINE)
