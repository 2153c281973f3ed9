// A backend for the CPU each of whose launches counts itself in the first element of the result and fails, in the words
// of the environment variable WORDS.
#include <cstdlib>
#include <stdexcept>

#include "opwheel/c_shim.h"
#include "muladd/catalogue.h"

extern "C" {
OPWHEEL_EXPORT int launches = 0;
}

namespace {

struct Backend {
  static int32_t device_type() { return aoti_torch_device_type_cpu(); }

  template <template <class> class Functor, class... Params>
  static void launch(const muladd::ElementwisePlan& plan, Params...) {
    ++launches;
    *reinterpret_cast<float*>(plan.output(0).data) += 1;
    throw std::runtime_error(std::getenv("WORDS"));
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(muladd, CPU, m) {
  using namespace muladd;
  using K = Kernels<Backend>;
  implement<op::muladd, &K::muladd>(m);
  implement<op::muladd_out, &K::muladd_out>(m);
  implement<op::muladd_, &K::muladd_>(m);
}
