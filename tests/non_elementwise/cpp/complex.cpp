// Operators for complex numbers and for float8, whose kernels dispatch on these dtypes.
#include <algorithm>
#include <array>
#include <utility>

#include "opwheel/kernels.h"
#include "opwheel/schema_library.h"

#define OF_SPECIAL_DTYPES(KERNEL)                                                                   \
  KERNEL(product, "product(Tensor x, Tensor w) -> Tensor")                                          \
  KERNEL(product_backward, "product_backward(Tensor grad, Tensor x, Tensor w) -> (Tensor, Tensor)") \
  KERNEL(power, "power(Tensor x) -> Tensor")                                                        \
  KERNEL(power_backward, "power_backward(Tensor grad, Tensor x) -> Tensor")                         \
  KERNEL(row_sum, "row_sum(Tensor x) -> Tensor")                                                    \
  KERNEL(quantize, "quantize(Tensor x, Tensor scale, ScalarType dtype) -> Tensor")                  \
  KERNEL(dequantize, "dequantize(Tensor q, Tensor scale) -> Tensor")                                \
  KERNEL(copy, "copy(Tensor x) -> Tensor")

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves_complex, OF_SPECIAL_DTYPES)

namespace {

using namespace opwheel;

constexpr DTypes kComplex{ScalarType::ComplexFloat, ScalarType::ComplexDouble};
constexpr DTypes kNumbers{DTypes({ScalarType::Float, ScalarType::Double}) | kComplex};
constexpr DTypes kFloat8{ScalarType::Float8_e5m2, ScalarType::Float8_e4m3fn, ScalarType::Float8_e5m2fnuz,
                         ScalarType::Float8_e4m3fnuz};

template <class T>
T conjugate(T value) {
  if constexpr (requires { value.imag(); }) {
    return T(value.real(), -value.imag());
  } else {
    return value;
  }
}

template <class T>
auto squared_modulus(T value) {
  if constexpr (requires { value.imag(); }) {
    return value.real() * value.real() + value.imag() * value.imag();
  } else {
    return value * value;
  }
}

constexpr ScalarType real_of(ScalarType dtype) {
  if (dtype == ScalarType::ComplexFloat) return ScalarType::Float;
  if (dtype == ScalarType::ComplexDouble) return ScalarType::Double;
  return dtype;
}

Tensor product(const Tensor& x, const Tensor& w) {
  check(x, "x").dtype(kNumbers);
  check(w, "w").same_dtype(x, "x").same_shape(x, "x");
  const Tensor a = contiguous(x), b = contiguous(w);
  Tensor y = new_empty_like(a);
  dispatch<kNumbers>(dtype_of(a), [&]<class T>() {
    for (int64_t i = 0; i < TensorInfo(a).numel; ++i) data<T>(y)[i] = data<T>(a)[i] * data<T>(b)[i];
  });
  return y;
}

std::array<Tensor, 2> product_backward(const Tensor& grad, const Tensor& x, const Tensor& w) {
  check(grad, "grad").same_dtype(x, "x").same_shape(x, "x");
  check(w, "w").same_dtype(x, "x").same_shape(x, "x");
  const Tensor g = contiguous(grad), a = contiguous(x), b = contiguous(w);
  Tensor by_x = new_empty_like(a), by_w = new_empty_like(b);
  dispatch<kNumbers>(dtype_of(a), [&]<class T>() {
    for (int64_t i = 0; i < TensorInfo(a).numel; ++i) {
      data<T>(by_x)[i] = data<T>(g)[i] * conjugate(data<T>(b)[i]);
      data<T>(by_w)[i] = data<T>(g)[i] * conjugate(data<T>(a)[i]);
    }
  });
  return {std::move(by_x), std::move(by_w)};
}

// |x|^2, which is real.
Tensor power(const Tensor& x) {
  check(x, "x").dtype(kNumbers);
  const Tensor a = contiguous(x);
  Tensor y = new_empty(sizes_of(a), real_of(dtype_of(a)), device_of(a));
  dispatch<kNumbers>(dtype_of(a), [&]<class T>() {
    using Real = decltype(squared_modulus(T()));
    for (int64_t i = 0; i < TensorInfo(a).numel; ++i) data<Real>(y)[i] = squared_modulus(data<T>(a)[i]);
  });
  return y;
}

Tensor power_backward(const Tensor& grad, const Tensor& x) {
  check(grad, "grad").dtype(real_of(dtype_of(x))).same_shape(x, "x");
  const Tensor g = contiguous(grad), a = contiguous(x);
  Tensor by_x = new_empty_like(a);
  dispatch<kNumbers>(dtype_of(a), [&]<class T>() {
    using Real = decltype(squared_modulus(T()));
    for (int64_t i = 0; i < TensorInfo(a).numel; ++i) data<T>(by_x)[i] = data<T>(a)[i] * T(2 * data<Real>(g)[i]);
  });
  return by_x;
}

// Over the last dimension, in a type with room for it.
Tensor row_sum(const Tensor& x) {
  check(x, "x").dtype(kNumbers).at_least(1);
  const Tensor a = contiguous(x);
  Sizes sizes = sizes_of(a);
  const int64_t width = sizes.back();
  sizes.pop_back();
  const int64_t rows = numel(sizes);
  Tensor y = new_empty(sizes, dtype_of(a), device_of(a));
  dispatch<kNumbers>(dtype_of(a), [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      Accumulate<T> sum(0);
      for (int64_t i = 0; i < width; ++i) sum += static_cast<Accumulate<T>>(data<T>(a)[r * width + i]);
      data<T>(y)[r] = static_cast<T>(sum);
    }
  });
  return y;
}

Tensor quantize(const Tensor& x, const Tensor& scale, ScalarType dtype) {
  check(x, "x").dtype(ScalarType::Float);
  check(scale, "scale").dtype(ScalarType::Float).ndim(0);
  const Tensor a = contiguous(x);
  Tensor q = new_empty(sizes_of(a), dtype, device_of(a));
  dispatch<kFloat8>(dtype, [&]<class T>() {
    for (int64_t i = 0; i < TensorInfo(a).numel; ++i) data<T>(q)[i] = T(data<float>(a)[i] / *data<float>(scale));
  });
  return q;
}

Tensor dequantize(const Tensor& q, const Tensor& scale) {
  check(q, "q").dtype(kFloat8);
  check(scale, "scale").dtype(ScalarType::Float).ndim(0);
  const Tensor a = contiguous(q);
  Tensor y = new_empty(sizes_of(a), ScalarType::Float, device_of(a));
  dispatch<kFloat8>(dtype_of(a), [&]<class T>() {
    for (int64_t i = 0; i < TensorInfo(a).numel; ++i) {
      data<float>(y)[i] = static_cast<float>(data<T>(a)[i]) * *data<float>(scale);
    }
  });
  return y;
}

Tensor copy(const Tensor& x) {
  constexpr DTypes kCopied{DTypes(kNumbers | kFloat8)};
  check(x, "x").dtype(kCopied);
  const Tensor a = contiguous(x);
  Tensor y = new_empty_like(a);
  dispatch<kCopied>(dtype_of(a), [&]<class T>() { std::copy_n(data<T>(a), TensorInfo(a).numel, data<T>(y)); });
  return y;
}

}  // namespace

OPWHEEL_KERNELS(waves_complex, CPU, m) {
  using namespace waves_complex;
  implement<op::product, ::product>(m);
  implement<op::product_backward, ::product_backward>(m);
  implement<op::power, ::power>(m);
  implement<op::power_backward, ::power_backward>(m);
  implement<op::row_sum, ::row_sum>(m);
  implement<op::quantize, ::quantize>(m);
  implement<op::dequantize, ::dequantize>(m);
  implement<op::copy, ::copy>(m);
}
