// Every operator of muladd on the CPU, by the SDK's loop that is the same for all: CMakeLists.txt builds it.
#include "muladd/operators.h"
#include "opwheel/elementwise_kernels.h"

namespace plain {

struct Backend {
  static int32_t device_type() { return aoti_torch_device_type_cpu(); }

  template <class Op, class... Params>
  static void launch(const opwheel::ElementwisePlan& plan, Params... params) {
    opwheel::reference_loop<Op>(plan, params...);
  }
};

}  // namespace plain

OPWHEEL_DECLARE_OPERATORS(muladd, MULADD_OPERATORS)
OPWHEEL_LIBRARY_IMPL(muladd, CPU, plain::Backend)
