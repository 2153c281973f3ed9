// Row operators of tests/general/operators.py on CUDA: a functor and a launch each.
#include <cmath>

#include "operators.h"
#include "opwheel/cuda/rows.cuh"
#include "opwheel/kernels.h"
#include "shapes.h"

OPWHEEL_DECLARE_KERNELS(waves_cpp, WAVES_KERNELS)

namespace waves_cuda {

using namespace waves;
namespace cuda = opwheel::cuda;  // there is a ::cuda in NVIDIA's headers

template <class T>
struct RmsNorm {
  using Acc = Accumulate<T>;
  const T *x, *weight;
  T* y;
  Acc* rstd;
  int64_t length;
  Acc eps;

  __device__ void operator()(int64_t i) const {
    const T* row = x + i * length;
    const Acc squares = cuda::sum<Acc>(length, [&](int64_t k) { return Acc(row[k]) * Acc(row[k]); });
    const Acc r = 1 / std::sqrt(squares / Acc(length) + eps);
    cuda::for_each(length, [&](int64_t k) { y[i * length + k] = T(Acc(row[k]) * r * Acc(weight[k])); });
    cuda::for_each(1, [&](int64_t) { rstd[i] = r; });
  }
};

std::array<Tensor, 2> rms_norm(const Tensor& given, const Tensor& given_weight, double eps) {
  const Check checked = check(given, "x").on_cuda().dtype(floating).at_least(1);
  const int64_t length = checked.info().sizes[checked.info().ndim - 1];
  check(given_weight, "weight").same_device(given, "x").same_dtype(given, "x").shape({length});
  const Tensor x = contiguous(given), weight = contiguous(given_weight);
  Tensor y = new_empty_like(x), rstd = new_empty(leading(x), wide(dtype_of(x)), device_of(x));
  dispatch(dtype_of(x), [&]<class T>() {
    using Acc = Accumulate<T>;
    cuda::for_rows(device_of(x), rows_of(checked.info()), length,
                   RmsNorm<T>{data<T>(x), data<T>(weight), data<T>(y), data<Acc>(rstd), length, Acc(eps)});
  });
  return {std::move(y), std::move(rstd)};
}

template <class T>
struct RmsNormBackward {
  using Acc = Accumulate<T>;
  const T *grad, *x, *weight;
  const Acc* rstd;
  T* dx;
  int64_t length;

  __device__ void operator()(int64_t i) const {
    const T *row = x + i * length, *grads = grad + i * length;
    const Acc r = rstd[i];
    const Acc inner =
        cuda::sum<Acc>(length, [&](int64_t k) { return Acc(grads[k]) * Acc(weight[k]) * Acc(row[k]); }) / Acc(length);
    cuda::for_each(length, [&](int64_t k) {
      dx[i * length + k] = T(r * Acc(grads[k]) * Acc(weight[k]) - Acc(row[k]) * r * r * r * inner);
    });
  }
};

// A "row" is a column of x.
template <class T>
struct RmsNormWeightBackward {
  using Acc = Accumulate<T>;
  const T *grad, *x;
  const Acc* rstd;
  T* dweight;
  int64_t rows, length;

  __device__ void operator()(int64_t k) const {
    const Acc total =
        cuda::sum<Acc>(rows, [&](int64_t i) { return Acc(grad[i * length + k]) * Acc(x[i * length + k]) * rstd[i]; });
    cuda::for_each(1, [&](int64_t) { dweight[k] = T(total); });
  }
};

std::array<Tensor, 2> rms_norm_backward(const Tensor& given_grad, const Tensor& given, const Tensor& given_weight,
                                        const Tensor& given_rstd) {
  const Check checked = check(given, "x").on_cuda().dtype(floating).at_least(1);
  const int64_t length = checked.info().sizes[checked.info().ndim - 1], rows = rows_of(checked.info());
  check(given_grad, "grad").same_device(given, "x").same_shape(given, "x").same_dtype(given, "x");
  check(given_weight, "weight").same_device(given, "x").same_dtype(given, "x").shape({length});
  check(given_rstd, "rstd").same_device(given, "x").dtype(wide(dtype_of(given)));
  const Tensor grad = contiguous(given_grad), x = contiguous(given), weight = contiguous(given_weight),
               rstd = contiguous(given_rstd);
  Tensor dx = new_empty_like(x), dweight = new_empty_like(weight);
  dispatch(dtype_of(x), [&]<class T>() {
    const auto* r = data<Accumulate<T>>(rstd);
    cuda::for_rows(device_of(x), rows, length,
                   RmsNormBackward<T>{data<T>(grad), data<T>(x), data<T>(weight), r, data<T>(dx), length});
    cuda::for_rows(device_of(x), length, rows,
                   RmsNormWeightBackward<T>{data<T>(grad), data<T>(x), r, data<T>(dweight), rows, length});
  });
  return {std::move(dx), std::move(dweight)};
}

template <class T>
struct QuantizeRowwise {
  const T* x;
  int8_t* q;
  float* scale;
  int64_t length;

  __device__ void operator()(int64_t i, cuda::Scratch<float> row) const {
    cuda::for_each(length, [&](int64_t k) { row[k] = float(x[i * length + k]); });
    const float s = cuda::maximum<float>(length, 0.0f, [&](int64_t k) { return std::fabs(row[k]); }) / 127;
    const float divisor = std::fmax(s, 1e-12f);
    cuda::for_each(length, [&](int64_t k) { q[i * length + k] = int8_t(std::nearbyint(row[k] / divisor)); });
    cuda::for_each(1, [&](int64_t) { scale[i] = s; });
  }
};

std::array<Tensor, 2> quantize_rowwise(const Tensor& given) {
  const Check checked = check(given, "x").on_cuda().dtype(floating).at_least(1);
  const int64_t length = checked.info().sizes[checked.info().ndim - 1];
  const Tensor x = contiguous(given);
  Tensor q = new_empty(sizes_of(x), ScalarType::Char, device_of(x));
  Tensor scale = new_empty(leading(x), ScalarType::Float, device_of(x));
  dispatch(dtype_of(x), [&]<class T>() {
    cuda::for_rows(device_of(x), rows_of(checked.info()), length,
                   QuantizeRowwise<T>{data<T>(x), data<int8_t>(q), data<float>(scale), length});
  });
  return {std::move(q), std::move(scale)};
}

// The elements of a row are `inner` apart.
template <class T>
struct Softmax {
  using Acc = Accumulate<T>;
  const T* x;
  T* y;
  int64_t length, inner;

  __device__ void operator()(int64_t i, cuda::Scratch<Acc> row) const {
    const int64_t start = i / inner * length * inner + i % inner;
    cuda::for_each(length, [&](int64_t k) { row[k] = Acc(x[start + k * inner]); });
    const Acc top = cuda::maximum<Acc>(length, Acc(-INFINITY), [&](int64_t k) { return row[k]; });
    cuda::for_each(length, [&](int64_t k) { row[k] = std::exp(row[k] - top); });
    const Acc total = cuda::sum<Acc>(length, [&](int64_t k) { return row[k]; });
    cuda::for_each(length, [&](int64_t k) { y[start + k * inner] = T(row[k] / total); });
  }
};

Tensor softmax(const Tensor& given, int64_t dim) {
  const Check checked = check(given, "x").on_cuda().dtype(floating).at_least(1);
  const Split split(checked.info(), dim);
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x);
  dispatch(dtype_of(x), [&]<class T>() {
    cuda::for_rows(device_of(x), split.outer * split.inner, split.length,
                   Softmax<T>{data<T>(x), data<T>(y), split.length, split.inner});
  });
  return y;
}

template <class T>
struct SoftmaxBackward {
  using Acc = Accumulate<T>;
  const T *grad, *y;
  T* dx;
  int64_t length, inner;

  __device__ void operator()(int64_t i) const {
    const int64_t start = i / inner * length * inner + i % inner;
    const auto product = [&](int64_t k) { return Acc(grad[start + k * inner]) * Acc(y[start + k * inner]); };
    const Acc total = cuda::sum<Acc>(length, product);
    cuda::for_each(length, [&](int64_t k) {
      dx[start + k * inner] = T((Acc(grad[start + k * inner]) - total) * Acc(y[start + k * inner]));
    });
  }
};

Tensor softmax_backward(const Tensor& given_grad, const Tensor& given, int64_t dim) {
  const Check checked = check(given, "y").on_cuda().dtype(floating).at_least(1);
  check(given_grad, "grad_y").same_device(given, "y").same_shape(given, "y").same_dtype(given, "y");
  const Split split(checked.info(), dim);
  const Tensor grad = contiguous(given_grad), y = contiguous(given);
  Tensor dx = new_empty_like(y);
  dispatch(dtype_of(y), [&]<class T>() {
    cuda::for_rows(device_of(y), split.outer * split.inner, split.length,
                   SoftmaxBackward<T>{data<T>(grad), data<T>(y), data<T>(dx), split.length, split.inner});
  });
  return dx;
}

}  // namespace waves_cuda

OPWHEEL_KERNELS(waves_cpp, CUDA, m) {
  using namespace waves_cpp;
  using namespace waves_cuda;
  implement<op::rms_norm, rms_norm>(m);
  implement<op::rms_norm_backward, rms_norm_backward>(m);
  implement<op::quantize_rowwise, quantize_rowwise>(m);
  implement<op::softmax, softmax>(m);
  implement<op::softmax_backward, softmax_backward>(m);
}
