// The host's half of the row operators in SYCL.
#include "opwheel/kernels.h"

#include "operators.h"
#include "opwheel/xpu/rows.h"
#include "row_operators.h"
#include "rows.h"

OPWHEEL_DECLARE_KERNELS(waves_cpp, WAVES_KERNELS)

namespace waves_xpu {

struct Xpu {
  template <class T>
  using Storage = typename xpu::Element<T>::Storage;
  template <class T>
  using RmsNorm = waves_xpu::RmsNorm<xpu::Element<T>>;
  template <class T>
  using RmsNormBackward = waves_xpu::RmsNormBackward<xpu::Element<T>>;
  template <class T>
  using RmsNormWeightBackward = waves_xpu::RmsNormWeightBackward<xpu::Element<T>>;
  template <class T>
  using QuantizeRowwise = waves_xpu::QuantizeRowwise<xpu::Element<T>>;
  template <class T>
  using Softmax = waves_xpu::Softmax<xpu::Element<T>>;
  template <class T>
  using SoftmaxBackward = waves_xpu::SoftmaxBackward<xpu::Element<T>>;

  static opwheel::Check on_device(const opwheel::Check& checked) { return checked.on_xpu(); }
  template <class F>
  static void for_rows(opwheel::Device device, int64_t rows, int64_t length, const F& functor) {
    xpu::for_rows(device, rows, length, functor);
  }
};

}  // namespace waves_xpu

OPWHEEL_KERNELS(waves_cpp, XPU, m) {
  using namespace waves_cpp;
  using namespace waves;
  WAVES_IMPLEMENT_ROWS(waves_xpu::Xpu, m)
}
