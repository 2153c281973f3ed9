// The kernels of the catalogue's out variants. The code that ExecuTorch generates from custom_ops.yaml calls them by
// these names: "kernel_name: muladd_executorch::muladd_out" stands for muladd_executorch::native::muladd_out.
#pragma once

#include <executorch/runtime/kernel/kernel_includes.h>

namespace muladd_executorch::native {

using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;

Tensor& muladd_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, double c, Tensor& out);
Tensor& fma_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, const Tensor& c, Tensor& out);
Tensor& mul_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, Tensor& out);
Tensor& add_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, Tensor& out);
Tensor& scale_out(KernelRuntimeContext& context, const Tensor& x, double factor, Tensor& out);

}  // namespace muladd_executorch::native
