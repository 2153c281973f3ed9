// What each operator computes for one element, in the compute type C (float for float16, bfloat16 and float32; double
// for float64; or a vector of them). Nothing here depends on PyTorch or on a device, so CPU, CUDA and SYCL kernels
// share it.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define OPWHEEL_HOST_DEVICE __host__ __device__
#else
#define OPWHEEL_HOST_DEVICE
#endif

namespace muladd {

template <class C>
struct MulAdd {
  C c;
  template <class Number>
  OPWHEEL_HOST_DEVICE explicit MulAdd(Number c) : c(static_cast<C>(c)) {}
  OPWHEEL_HOST_DEVICE C operator()(C a, C b) const { return a * b + c; }
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

// A functor with two outputs returns them in this order.
template <class C>
struct Pair {
  C first, second;
};

template <class C>
struct MulAddBackward {
  OPWHEEL_HOST_DEVICE Pair<C> operator()(C grad, C a, C b) const { return {grad * b, grad * a}; }
};

}  // namespace muladd
