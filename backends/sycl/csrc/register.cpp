#include "backend.h"
#include "muladd/catalogue.h"

STABLE_TORCH_LIBRARY_IMPL(muladd, XPU, m) {
  using namespace muladd;
  using K = Kernels<xpu::Backend>;
  implement<op::muladd, &K::muladd>(m);
  implement<op::muladd_out, &K::muladd_out>(m);
  implement<op::muladd_, &K::muladd_>(m);
  implement<op::muladd_backward, &K::muladd_backward>(m);
  implement<op::fma, &K::fma>(m);
  implement<op::fma_out, &K::fma_out>(m);
  implement<op::mul, &K::mul>(m);
  implement<op::mul_out, &K::mul_out>(m);
  implement<op::add, &K::add>(m);
  implement<op::add_out, &K::add_out>(m);
  implement<op::scale, &K::scale>(m);
  implement<op::scale_out, &K::scale_out>(m);
}
