// Every kernel of the catalogue for a Backend of opwheel/elementwise_kernels.h. A backend's IMPL block is one line with this; a
// backend that has something better for an operator registers its own kernel instead.
#pragma once

#include "muladd/arithmetic.h"
#include "opwheel/elementwise_kernels.h"
#include "muladd/operators.h"

namespace muladd {

template <class Backend>
struct Kernels {
  static Tensor muladd(const Tensor& a, const Tensor& b, double c) {
    return functional<op::muladd, Backend, MulAdd>({&a, &b}, c);
  }
  static void muladd_out(const Tensor& a, const Tensor& b, double c, Tensor& out) {
    into<op::muladd_out, Backend, MulAdd>(out, {&a, &b}, c);
  }
  static void muladd_(Tensor& a, const Tensor& b, double c) { into<op::muladd_, Backend, MulAdd>(a, {&a, &b}, c); }
  static std::array<Tensor, 2> muladd_backward(const Tensor& grad, const Tensor& a, const Tensor& b) {
    return functional<op::muladd_backward, Backend, MulAddBackward>({&grad, &a, &b});
  }
  static Tensor fma(const Tensor& a, const Tensor& b, const Tensor& c) {
    return functional<op::fma, Backend, Fma>({&a, &b, &c});
  }
  static void fma_out(const Tensor& a, const Tensor& b, const Tensor& c, Tensor& out) {
    into<op::fma_out, Backend, Fma>(out, {&a, &b, &c});
  }
  static Tensor mul(const Tensor& a, const Tensor& b) { return functional<op::mul, Backend, Mul>({&a, &b}); }
  static void mul_out(const Tensor& a, const Tensor& b, Tensor& out) { into<op::mul_out, Backend, Mul>(out, {&a, &b}); }
  static Tensor add(const Tensor& a, const Tensor& b) { return functional<op::add, Backend, Add>({&a, &b}); }
  static void add_out(const Tensor& a, const Tensor& b, Tensor& out) { into<op::add_out, Backend, Add>(out, {&a, &b}); }
  static Tensor scale(const Tensor& x, double factor) { return functional<op::scale, Backend, Scale>({&x}, factor); }
  static void scale_out(const Tensor& x, double factor, Tensor& out) {
    into<op::scale_out, Backend, Scale>(out, {&x}, factor);
  }
};

}  // namespace muladd
