// What an element-wise operator computes for one element, as a functor: a class template over the compute type C (float
// for float16, bfloat16 and float32; double for float64; or a vector of them) that takes the operator's numbers in its
// constructor and one element of each input in operator().
//
//     template <class C>
//     struct Axpby {
//       C a, b;
//       template <class Number>
//       OPWHEEL_HOST_DEVICE Axpby(Number a, Number b) : a(static_cast<C>(a)), b(static_cast<C>(b)) {}
//       OPWHEEL_HOST_DEVICE C operator()(C x, C y) const { return a * x + b * y; }
//     };
//
// An operator with several results returns Results<C, N>. Numbers and elements are combined by arithmetic and ?: alone:
// C may be a vector, which exp() and its like of the C++ library do not take. What needs those is a KERNEL over rows
// (opwheel/kernels.h; opwheel/cpu/vectorized_rows.h has exp, sigmoid, tanh and erf of vectors). Nothing here depends on
// PyTorch or on a device: the same functor is compiled for the CPU, for CUDA and for SYCL.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define OPWHEEL_HOST_DEVICE __host__ __device__
#else
// Always inlined: the same functor is compiled for several instruction sets, and no linker may take one for the other.
#define OPWHEEL_HOST_DEVICE inline __attribute__((always_inline))
#endif

// Arrays stay in a GPU's registers only when every index into them is a constant.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define OPWHEEL_UNROLL _Pragma("unroll")
#else
#define OPWHEEL_UNROLL
#endif

namespace opwheel {

constexpr int kMaxOperands = 8;    // results and tensor arguments together
constexpr int kMaxParameters = 4;  // numbers

// The results for one element, in the schema's order.
template <class C, int N>
struct Results {
  C values[N];
};

namespace detail {

template <class Call>
struct CallTraits;
template <class F, class C, class... Inputs>
struct CallTraits<C (F::*)(Inputs...) const> {
  static constexpr int kInputs = sizeof...(Inputs);
  static constexpr int kOutputs = 1;
};
template <class F, class C, int N, class... Inputs>
struct CallTraits<Results<C, N> (F::*)(Inputs...) const> {
  static constexpr int kInputs = sizeof...(Inputs);
  static constexpr int kOutputs = N;
};

template <class C>
OPWHEEL_HOST_DEVICE void unpack(const C& result, C (&outputs)[1]) {
  outputs[0] = result;
}
template <class C, int N>
OPWHEEL_HOST_DEVICE void unpack(const Results<C, N>& results, C (&outputs)[N]) {
  OPWHEEL_UNROLL
  for (int i = 0; i < N; ++i) outputs[i] = results.values[i];
}

template <class F, class C, int kOutputs, std::size_t... I>
OPWHEEL_HOST_DEVICE void call(const F& functor, const C* inputs, C (&outputs)[kOutputs], std::index_sequence<I...>) {
  unpack(functor(inputs[I]...), outputs);
}

}  // namespace detail

// How many elements a functor takes and gives: kInputs, kOutputs, and kOperands, both together.
template <class F>
struct FunctorTraits : detail::CallTraits<decltype(&F::operator())> {
  static constexpr int kOperands = FunctorTraits::kOutputs + FunctorTraits::kInputs;
  static_assert(kOperands <= kMaxOperands,
                "opwheel: a functor may have 8 inputs and results together at most; list an operator with more as a "
                "KERNEL (opwheel/kernels.h)");
};

// One element of each operand.
template <class F, class C, int kInputs, int kOutputs>
OPWHEEL_HOST_DEVICE void apply(const F& functor, const C (&inputs)[kInputs], C (&outputs)[kOutputs]) {
  detail::call(functor, inputs, outputs, std::make_index_sequence<kInputs>{});
}

// The functor from as many of the parameters as its constructor takes.
template <class F, class P>
OPWHEEL_HOST_DEVICE F make_functor(const P* parameters) {
  if constexpr (std::is_constructible_v<F, P, P, P, P>) {
    return F(parameters[0], parameters[1], parameters[2], parameters[3]);
  } else if constexpr (std::is_constructible_v<F, P, P, P>) {
    return F(parameters[0], parameters[1], parameters[2]);
  } else if constexpr (std::is_constructible_v<F, P, P>) {
    return F(parameters[0], parameters[1]);
  } else if constexpr (std::is_constructible_v<F, P>) {
    return F(parameters[0]);
  } else {
    return F();
  }
}

}  // namespace opwheel
