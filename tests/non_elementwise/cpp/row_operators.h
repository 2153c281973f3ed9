// The host's half of the row operators on a device: checks, allocation and launches. D has the device's functors
// (D::RmsNorm<T> ...), what it calls an element of T (D::Storage<T>), and for_rows.
#pragma once

#include <array>
#include <utility>

#include "shapes.h"

namespace waves {

template <class D>
struct RowOperators {
  static std::array<Tensor, 2> rms_norm(const Tensor& given, const Tensor& given_weight, double eps) {
    const Check checked = D::on_device(check(given, "x")).dtype(floating).at_least(1);
    const int64_t length = checked.info().sizes[checked.info().ndim - 1];
    check(given_weight, "weight").same_device(given, "x").same_dtype(given, "x").shape({length});
    const Tensor x = contiguous(given), weight = contiguous(given_weight);
    Tensor y = new_empty_like(x), rstd = new_empty(leading(x), wide(dtype_of(x)), device_of(x));
    dispatch(dtype_of(x), [&]<class T>() {
      using Acc = Accumulate<T>;
      const typename D::template RmsNorm<T> functor{
          elements<T>(x), elements<T>(weight), elements<T>(y), data<Acc>(rstd), length, Acc(eps)};
      D::for_rows(device_of(x), rows_of(checked.info()), length, functor);
    });
    return {std::move(y), std::move(rstd)};
  }

  static std::array<Tensor, 2> rms_norm_backward(const Tensor& given_grad, const Tensor& given,
                                                 const Tensor& given_weight, const Tensor& given_rstd) {
    const Check checked = D::on_device(check(given, "x")).dtype(floating).at_least(1);
    const int64_t length = checked.info().sizes[checked.info().ndim - 1], rows = rows_of(checked.info());
    check(given_grad, "grad_output").same_device(given, "x").same_shape(given, "x").same_dtype(given, "x");
    check(given_weight, "weight").same_device(given, "x").same_dtype(given, "x").shape({length});
    check(given_rstd, "rstd").same_device(given, "x").dtype(wide(dtype_of(given)));
    check_one_per_row(given_rstd, "rstd", checked.info());
    const Tensor grad = contiguous(given_grad), x = contiguous(given), weight = contiguous(given_weight),
                 rstd = contiguous(given_rstd);
    Tensor dx = new_empty_like(x), dweight = new_empty_like(weight);
    dispatch(dtype_of(x), [&]<class T>() {
      const auto* r = data<Accumulate<T>>(rstd);
      const typename D::template RmsNormBackward<T> of_rows{elements<T>(grad), elements<T>(x), elements<T>(weight), r,
                                                            elements<T>(dx),   length};
      D::for_rows(device_of(x), rows, length, of_rows);
      const typename D::template RmsNormWeightBackward<T> of_columns{elements<T>(grad),    elements<T>(x), r,
                                                                     elements<T>(dweight), rows,           length};
      D::for_rows(device_of(x), length, rows, of_columns);
    });
    return {std::move(dx), std::move(dweight)};
  }

  static std::array<Tensor, 2> quantize_rowwise(const Tensor& given) {
    const Check checked = D::on_device(check(given, "x")).dtype(floating).at_least(1);
    const int64_t length = checked.info().sizes[checked.info().ndim - 1];
    const Tensor x = contiguous(given);
    Tensor q = new_empty(sizes_of(x), ScalarType::Char, device_of(x));
    Tensor scale = new_empty(leading(x), ScalarType::Float, device_of(x));
    dispatch(dtype_of(x), [&]<class T>() {
      const typename D::template QuantizeRowwise<T> functor{elements<T>(x), data<int8_t>(q), data<float>(scale),
                                                            length};
      D::for_rows(device_of(x), rows_of(checked.info()), length, functor);
    });
    return {std::move(q), std::move(scale)};
  }

  static Tensor softmax(const Tensor& given, int64_t dim) {
    const Check checked = D::on_device(check(given, "x")).dtype(floating).at_least(1);
    const Split split(checked.info(), dim);
    const Tensor x = contiguous(given);
    Tensor y = new_empty_like(x);
    dispatch(dtype_of(x), [&]<class T>() {
      const typename D::template Softmax<T> functor{elements<T>(x), elements<T>(y), split.length, split.inner};
      D::for_rows(device_of(x), split.outer * split.inner, split.length, functor);
    });
    return y;
  }

  static Tensor softmax_backward(const Tensor& given_grad, const Tensor& given, int64_t dim) {
    const Check checked = D::on_device(check(given, "y")).dtype(floating).at_least(1);
    check(given_grad, "grad_output").same_device(given, "y").same_shape(given, "y").same_dtype(given, "y");
    const Split split(checked.info(), dim);
    const Tensor grad = contiguous(given_grad), y = contiguous(given);
    Tensor dx = new_empty_like(y);
    dispatch(dtype_of(y), [&]<class T>() {
      const typename D::template SoftmaxBackward<T> functor{elements<T>(grad), elements<T>(y), elements<T>(dx),
                                                            split.length, split.inner};
      D::for_rows(device_of(y), split.outer * split.inner, split.length, functor);
    });
    return dx;
  }

 private:
  template <class T>
  static typename D::template Storage<T>* elements(const Tensor& tensor) {
    return data<typename D::template Storage<T>>(tensor);
  }
};

// Registers all of them; `op` is the library's namespace of operators.
#define WAVES_IMPLEMENT_ROWS(D, m)                                         \
  implement<op::rms_norm, RowOperators<D>::rms_norm>(m);                   \
  implement<op::rms_norm_backward, RowOperators<D>::rms_norm_backward>(m); \
  implement<op::quantize_rowwise, RowOperators<D>::quantize_rowwise>(m);   \
  implement<op::softmax, RowOperators<D>::softmax>(m);                     \
  implement<op::softmax_backward, RowOperators<D>::softmax_backward>(m);

}  // namespace waves
