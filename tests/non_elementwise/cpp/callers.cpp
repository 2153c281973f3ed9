// Calls from C functions, in a library that registers nothing: it can be opened many times, as copies, and each makes
// first calls.
#include "opwheel/call.h"

using namespace opwheel;

OPWHEEL_CALLEE(f, "waves_callee::f(Tensor x) -> Tensor")
OPWHEEL_CALLEE(g, "waves_callee::g(Tensor x, float a, int[] n) -> Tensor")

namespace {

// What a call on [2.0] gave, or the words of its error.
template <class Body>
const char* outcome(const Body& body) {
  thread_local std::string text;
  try {
    const Tensor x = new_empty({1}, ScalarType::Float, Device{aoti_torch_device_type_cpu(), -1});
    *data<float>(x) = 2;
    text = std::to_string(*data<float>(body(x)));
  } catch (const std::exception& error) {
    text = error.what();
  }
  return text.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* call_f() {
  return outcome([](const Tensor& x) { return call<f>(x); });
}
extern "C" __attribute__((visibility("default"))) const char* call_g() {
  return outcome([](const Tensor& x) { return call<g>(x, 3, {1, 2}); });
}
