// The kernels of both operators for ExecuTorch's runtime. custom_ops.yaml names them without the "native".
#include "elementwise.h"

namespace my_ops {

template <class C>
struct Times {
  C factor;
  explicit Times(double factor) : factor(static_cast<C>(factor)) {}
  C operator()(C x) const { return x * factor; }
};

namespace native {

using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;
using muladd_executorch::elementwise;

Tensor& mul3_out(KernelRuntimeContext& context, const Tensor& input, Tensor& out) {
  return elementwise<Times>(context, "mul3.out", out, {&input}, 3.0);
}

Tensor& mul4_out(KernelRuntimeContext& context, const Tensor& input, Tensor& out) {
  return elementwise<Times>(context, "mul4.out", out, {&input}, 4.0);
}

}  // namespace native
}  // namespace my_ops
