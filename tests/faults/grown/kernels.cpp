#include "opwheel/kernels.h"

#include <array>
#include <optional>
#include <vector>

#include "operators.h"

OPWHEEL_DECLARE_KERNELS(waves_grown, WAVES_GROWN_KERNELS)

namespace {

using namespace opwheel;

Tensor times(const Tensor& x, double k) {
  Tensor y = new_empty_like(x);
  for (int64_t i = 0; i < numel(sizes_of(x)); ++i) data<float>(y)[i] = data<float>(x)[i] * static_cast<float>(k);
  return y;
}
Tensor twice(const Tensor& x) { return times(x, 2); }
std::array<Tensor, 2> both(const Tensor& x, const Tensor& y) { return {times(x, 1), times(y, -1)}; }
Tensor pick(const Tensor& x, bool negate, std::optional<int64_t> n) {
  return times(x, (negate ? -1.0 : 1.0) * static_cast<double>(n.value_or(1)));
}
void fill(Tensor& x, const std::vector<double>& values) { data<float>(x)[0] = static_cast<float>(values[1]); }

}  // namespace

OPWHEEL_KERNELS(waves_grown, CPU, m) {
  implement<waves_grown::op::twice, twice>(m);
  implement<waves_grown::op::times, times>(m);
  implement<waves_grown::op::both, both>(m);
  implement<waves_grown::op::pick, pick>(m);
  implement<waves_grown::op::fill, fill>(m);
}
