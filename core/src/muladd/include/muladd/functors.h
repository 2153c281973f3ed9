// What each operator computes for one element, in the compute type C (opwheel/functor.h).
#pragma once

#include "opwheel/functor.h"

namespace muladd {

template <class C>
struct MulAdd {
  C c;
  template <class Number>
  OPWHEEL_HOST_DEVICE explicit MulAdd(Number c) : c(static_cast<C>(c)) {}
  OPWHEEL_HOST_DEVICE C operator()(C a, C b) const { return a * b + c; }
};

template <class C>
struct MulAddBackward {
  OPWHEEL_HOST_DEVICE opwheel::Results<C, 2> operator()(C grad_output, C a, C b) const {
    return {grad_output * b, grad_output * a};
  }
};

template <class C>
struct Fma {
  OPWHEEL_HOST_DEVICE C operator()(C a, C b, C c) const { return a * b + c; }
};

template <class C>
struct Mul {
  OPWHEEL_HOST_DEVICE C operator()(C a, C b) const { return a * b; }
};

template <class C>
struct Add {
  OPWHEEL_HOST_DEVICE C operator()(C a, C b) const { return a + b; }
};

template <class C>
struct Scale {
  C factor;
  template <class Number>
  OPWHEEL_HOST_DEVICE explicit Scale(Number factor) : factor(static_cast<C>(factor)) {}
  OPWHEEL_HOST_DEVICE C operator()(C x) const { return x * factor; }
};

}  // namespace muladd
