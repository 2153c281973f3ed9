#include "kernels.h"

#include "elementwise.h"
#include "muladd/arithmetic.h"

namespace muladd_executorch::native {

Tensor& muladd_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, double c, Tensor& out) {
  return elementwise<muladd::MulAdd>(context, "muladd.out", out, {&a, &b}, c);
}

Tensor& fma_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, const Tensor& c, Tensor& out) {
  return elementwise<muladd::Fma>(context, "fma.out", out, {&a, &b, &c});
}

Tensor& mul_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, Tensor& out) {
  return elementwise<muladd::Mul>(context, "mul.out", out, {&a, &b});
}

Tensor& add_out(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, Tensor& out) {
  return elementwise<muladd::Add>(context, "add.out", out, {&a, &b});
}

Tensor& scale_out(KernelRuntimeContext& context, const Tensor& x, double factor, Tensor& out) {
  return elementwise<muladd::Scale>(context, "scale.out", out, {&x}, factor);
}

}  // namespace muladd_executorch::native
