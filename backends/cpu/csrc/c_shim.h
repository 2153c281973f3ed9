// The kernels as C functions, for models that AOTInductor compiled with opwheel.aotinductor.c_shims. Part of
// register.cpp, which has instantiated the kernels.
#pragma once

#include "backend.h"
#include "opwheel/c_shim.h"
#include "muladd/catalogue.h"

namespace muladd::cpu {

using K = Kernels<Backend>;

extern "C" {

OPWHEEL_EXPORT AOTITorchError aoti_torch_cpu_muladd(AtenTensorHandle a, AtenTensorHandle b, double c,
                                                   AtenTensorHandle* ret0) {
  return c_shim<&K::muladd>({ret0}, a, b, c);
}

OPWHEEL_EXPORT AOTITorchError aoti_torch_cpu_muladd_backward(AtenTensorHandle grad, AtenTensorHandle a,
                                                            AtenTensorHandle b, AtenTensorHandle* ret0,
                                                            AtenTensorHandle* ret1) {
  return c_shim<&K::muladd_backward>({ret0, ret1}, grad, a, b);
}

OPWHEEL_EXPORT AOTITorchError aoti_torch_cpu_fma(AtenTensorHandle a, AtenTensorHandle b, AtenTensorHandle c,
                                                AtenTensorHandle* ret0) {
  return c_shim<&K::fma>({ret0}, a, b, c);
}

OPWHEEL_EXPORT AOTITorchError aoti_torch_cpu_mul(AtenTensorHandle a, AtenTensorHandle b, AtenTensorHandle* ret0) {
  return c_shim<&K::mul>({ret0}, a, b);
}

OPWHEEL_EXPORT AOTITorchError aoti_torch_cpu_add(AtenTensorHandle a, AtenTensorHandle b, AtenTensorHandle* ret0) {
  return c_shim<&K::add>({ret0}, a, b);
}

OPWHEEL_EXPORT AOTITorchError aoti_torch_cpu_scale(AtenTensorHandle x, double factor, AtenTensorHandle* ret0) {
  return c_shim<&K::scale>({ret0}, x, factor);
}

}  // extern "C"

}  // namespace muladd::cpu
