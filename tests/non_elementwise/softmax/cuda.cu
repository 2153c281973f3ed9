// On CUDA: a functor, which the device runs for each row, and the operator, which checks, allocates and launches it.
#include <cmath>

#include "opwheel/cuda/rows.cuh"
#include "opwheel/kernels.h"
#include "waves/operators.h"

OPWHEEL_DECLARE_KERNELS(waves, WAVES_KERNELS)

namespace waves_cuda {

using namespace opwheel;
namespace cuda = opwheel::cuda;  // there is a ::cuda in NVIDIA's headers

template <class T>
struct Softmax {
  using Acc = Accumulate<T>;
  const T* x;
  T* y;
  int64_t length;

  __device__ void operator()(int64_t row, cuda::Scratch<Acc> exps) const {
    const T* in = x + row * length;
    const Acc top = cuda::maximum<Acc>(length, Acc(-INFINITY), [&](int64_t k) { return Acc(in[k]); });
    cuda::for_each(length, [&](int64_t k) { exps[k] = std::exp(Acc(in[k]) - top); });
    const Acc total = cuda::sum<Acc>(length, [&](int64_t k) { return exps[k]; });
    cuda::for_each(length, [&](int64_t k) { y[row * length + k] = T(exps[k] / total); });
  }
};

Tensor softmax(const Tensor& given) {
  const TensorInfo info = check(given, "x").on_cuda().dtype(floating).at_least(1).info();
  const int64_t length = info.sizes[info.ndim - 1];
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x);
  if (info.numel == 0) return y;
  dispatch(dtype_of(x), [&]<class T>() {
    cuda::for_rows(device_of(x), info.numel / length, length, Softmax<T>{data<T>(x), data<T>(y), length});
  });
  return y;
}

}  // namespace waves_cuda

OPWHEEL_KERNELS(waves, CUDA, m) { opwheel::implement<waves::op::softmax, waves_cuda::softmax>(m); }
