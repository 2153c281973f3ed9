// A library with the C function of one operator, whose schema is TIMES: x * (the sum of its numbers), in float32.
#include "opwheel/cpu/backend.h"
#include "opwheel/operators.h"

namespace waves_c {

template <class C>
struct Times {
  C factor;
  template <class... Numbers>
  explicit Times(Numbers... numbers) : factor(static_cast<C>((numbers + ...))) {}
  C operator()(C x) const { return x * factor; }
};

}  // namespace waves_c

#define WAVES_C_OPERATORS(OPERATOR, OVERLOAD) OPERATOR(times, Times, TIMES)
OPWHEEL_DECLARE_OPERATORS(waves_c, WAVES_C_OPERATORS)

namespace waves_c::cpu {

struct Backend {
  static int32_t device_type() { return aoti_torch_device_type_cpu(); }
  template <class Op, class... Params>
  static void launch(const opwheel::ElementwisePlan& plan, Params... params) {
    const typename Op::template Functor<float> functor(params...);
    const auto* x = reinterpret_cast<const float*>(plan.input(0).data);
    auto* y = reinterpret_cast<float*>(plan.output(0).data);
    for (int64_t i = 0; i < plan.numel; ++i) y[i] = functor(x[i]);
  }
};

OPWHEEL_C_SHIM(cpu, times)

}  // namespace waves_c::cpu
