// The kernels of the embedded device images, ready to launch.
#pragma once

#include <sycl/sycl.hpp>

#include "device/kernel_list.h"
#include "muladd/tensor.h"

namespace muladd::xpu {

// Every entry point of an image; the device code defines functions of these names.
#define MULADD_SYCL_ENTRY(name, Functor, outputs, inputs) name##_dense, name##_strided,
enum class Entry { MULADD_SYCL_KERNELS(MULADD_SYCL_ENTRY) count };
#undef MULADD_SYCL_ENTRY

// Loads the image for the dtype when a queue's device first needs it. Throws where the device lacks the dtype.
::sycl::kernel kernel(const ::sycl::queue& queue, DType dtype, Entry entry);

}  // namespace muladd::xpu
