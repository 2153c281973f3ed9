// A backend for the CPU each of whose launches counts itself in the first element of the result and fails, in the words
// of the environment variable WORDS.
#include <cstdlib>
#include <stdexcept>

#include "muladd/operators.h"
#include "opwheel/elementwise_kernels.h"
#include "opwheel/operators.h"

OPWHEEL_DECLARE_OPERATORS(muladd, MULADD_OPERATORS)

extern "C" {
__attribute__((visibility("default"))) int launches = 0;
}

namespace {

struct Backend {
  static int32_t device_type() { return aoti_torch_device_type_cpu(); }

  template <class Op, class... Params>
  static void launch(const opwheel::ElementwisePlan& plan, Params...) {
    ++launches;
    *reinterpret_cast<float*>(plan.output(0).data) += 1;
    throw std::runtime_error(std::getenv("WORDS"));
  }
};

}  // namespace

OPWHEEL_KERNELS(muladd, CPU, m) {
  using namespace muladd;
  opwheel::implement_all<Backend>(m, opwheel::OperatorList<op::muladd, op::muladd_out, op::muladd_>());
}
