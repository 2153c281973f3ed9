// Row operators of tests/non_elementwise/operators.py on CUDA: what the device runs for each row.
#include <cmath>

#include "operators.h"
#include "opwheel/cuda/rows.cuh"
#include "opwheel/kernels.h"
#include "row_operators.h"

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

struct Cuda {
  template <class T>
  using Storage = T;
  template <class T>
  using RmsNorm = waves_cuda::RmsNorm<T>;
  template <class T>
  using RmsNormBackward = waves_cuda::RmsNormBackward<T>;
  template <class T>
  using RmsNormWeightBackward = waves_cuda::RmsNormWeightBackward<T>;
  template <class T>
  using QuantizeRowwise = waves_cuda::QuantizeRowwise<T>;
  template <class T>
  using Softmax = waves_cuda::Softmax<T>;
  template <class T>
  using SoftmaxBackward = waves_cuda::SoftmaxBackward<T>;

  static Check on_device(const Check& checked) { return checked.on_cuda(); }
  template <class F>
  static void for_rows(Device device, int64_t rows, int64_t length, const F& functor) {
    cuda::for_rows(device, rows, length, functor);
  }
};

}  // namespace waves_cuda

OPWHEEL_KERNELS(waves_cpp, CUDA, m) {
  using namespace waves_cpp;
  using namespace waves;
  WAVES_IMPLEMENT_ROWS(waves_cuda::Cuda, m)
}
