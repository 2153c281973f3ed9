// mul4 for PyTorch, written in C++: input * 4, functional and out.
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

namespace {

at::Tensor mul4(const at::Tensor& input) { return at::mul(input, 4); }

// mul_out has no overload for a number.
at::Tensor& mul4_out(const at::Tensor& input, at::Tensor& out) {
  return at::mul_out(out, input, at::scalar_tensor(4, input.options()));
}

}  // namespace

TORCH_LIBRARY(my_ops, m) {
  m.def("mul4(Tensor input) -> Tensor");
  m.def("mul4.out(Tensor input, *, Tensor(a!) out) -> Tensor(a!)");
}

// On every device, and on the shape-only tensors that exporting uses.
TORCH_LIBRARY_IMPL(my_ops, CompositeExplicitAutograd, m) {
  m.impl("mul4", mul4);
  m.impl("mul4.out", mul4_out);
}
