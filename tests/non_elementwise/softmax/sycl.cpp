// The host's half: checks, allocates and launches.
#include "opwheel/kernels.h"
#include "opwheel/xpu/rows.h"
#include "rows.h"
#include "waves/operators.h"

OPWHEEL_DECLARE_KERNELS(waves, WAVES_KERNELS)

namespace waves_xpu {

using namespace opwheel;

Tensor softmax(const Tensor& given) {
  const TensorInfo info = check(given, "x").on_xpu().dtype(floating).at_least(1).info();
  const int64_t length = info.sizes[info.ndim - 1];
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x);
  if (info.numel == 0) return y;
  dispatch(dtype_of(x), [&]<class T>() {
    using E = xpu::Element<T>;
    using Storage = typename E::Storage;
    const Softmax<E> functor{data<Storage>(x), data<Storage>(y), length};
    xpu::for_rows(device_of(x), info.numel / length, length, functor);
  });
  return y;
}

}  // namespace waves_xpu

OPWHEEL_KERNELS(waves, XPU, m) { opwheel::implement<waves::op::softmax, waves_xpu::softmax>(m); }
