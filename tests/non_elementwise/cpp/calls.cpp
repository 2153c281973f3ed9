// Kernels that call other operators: each of types.h, some of PyTorch's, and some that the tests define.
//
// g++ 12 takes what an empty optional does not hold for read (a Generator's shared_ptr).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "opwheel/call.h"
#include "opwheel/kernels.h"
#include "opwheel/schema_library.h"
#include "types.h"

#define CALLERS(KERNEL)                                            \
  KERNEL(mm, "mm(Tensor a, Tensor b) -> Tensor")                   \
  KERNEL(norm, "norm(Tensor x) -> (Tensor, Tensor, Tensor)")       \
  KERNEL(relu_, "relu_(Tensor(a!) x) -> Tensor(a!)")               \
  KERNEL(fill_both, "fill_both(Tensor(a!) x, Tensor(b!) y) -> ()") \
  KERNEL(plus, "plus(Tensor a, Tensor b) -> Tensor")               \
  KERNEL(fails, "fails(Tensor x) -> Tensor")                       \
  KERNEL(four, "four(Tensor x) -> Tensor")

#define EVERY_CALLER(KERNEL) TYPES(KERNEL) CALLERS(KERNEL)

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves_calls, EVERY_CALLER)

namespace callee {

#define CALLEE(identifier, text) OPWHEEL_CALLEE(identifier, "waves_types::" text)
TYPES(CALLEE)

OPWHEEL_CALLEE(mm, "aten::mm(Tensor self, Tensor mat2) -> Tensor")
OPWHEEL_CALLEE(norm,
               "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, "
               "float eps) -> (Tensor, Tensor, Tensor)")
OPWHEEL_CALLEE(relu_, "aten::relu_(Tensor(a!) self) -> Tensor(a!)")
OPWHEEL_CALLEE(fill_both, "waves_callee::fill_both(Tensor(a!) x, Tensor(b!) y) -> ()")
OPWHEEL_CALLEE(plus, "aten::add.Tensor(Tensor self, Tensor other) -> Tensor")
OPWHEEL_CALLEE(four, "waves_callee::four(Tensor x) -> Tensor")
OPWHEEL_CALLEE(fails, "waves_callee::fails(Tensor x) -> Tensor")

}  // namespace callee

namespace {

using namespace opwheel;

// A kernel that hands its arguments to the operator of the same signature.
template <class Callee, class Kernel>
struct Forward;
template <class Callee, class Result, class... Arguments>
struct Forward<Callee, Result(Arguments...)> {
  static Result kernel(Arguments... arguments) { return call<Callee>(arguments...); }
};

std::array<Tensor, 3> norm(const Tensor& x) {
  const int64_t columns = sizes_of(x).back();
  return call<callee::norm>(x, {columns}, std::nullopt, std::nullopt, 1e-5);
}

}  // namespace

#define FORWARD(identifier, text)                                                                                      \
  implement<waves_calls::op::identifier, Forward<callee::identifier, Signature<waves_calls::op::identifier>>::kernel>( \
      m);

OPWHEEL_KERNELS(waves_calls, CPU, m) {
  TYPES(FORWARD)
  FORWARD(mm, )
  implement<waves_calls::op::norm, norm>(m);
  FORWARD(relu_, )
  FORWARD(fill_both, )
  FORWARD(plus, )
  FORWARD(fails, )
  FORWARD(four, )
}
