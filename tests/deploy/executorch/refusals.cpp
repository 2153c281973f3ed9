// Calls kernels with tensors that do not fit: each must fail the context with InvalidArgument and go on living.
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>

#include <cstdio>

#include "kernels.h"

namespace {

using executorch::aten::ScalarType;
using executorch::aten::TensorShapeDynamism;
using executorch::extension::TensorPtr;
using executorch::extension::zeros;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;
namespace native = muladd_executorch::native;

int failures = 0;

template <class Call>
void expect(Error error, const char* what, const Call& call) {
  KernelRuntimeContext context;
  call(context);
  if (context.failure_state() == error) return;
  std::fprintf(stderr, "%s: got %s\n", what, executorch::runtime::to_string(context.failure_state()));
  ++failures;
}

}  // namespace

int main() {
  executorch::runtime::runtime_init();
  const TensorPtr x = zeros({2, 3}), column = zeros({2, 1}), other = zeros({4, 3});
  const TensorPtr integers = zeros({2, 3}, ScalarType::Int), wide = zeros({2, 3}, ScalarType::Double);
  const TensorPtr out = zeros({2, 3}), small = zeros({1, 3}), one_dimension = zeros({6});
  const TensorPtr flexible = zeros({4, 6}, ScalarType::Float, TensorShapeDynamism::DYNAMIC_BOUND);

  expect(Error::Ok, "broadcast", [&](auto& context) { native::mul_out(context, *x, *column, *out); });
  expect(Error::Ok, "resize", [&](auto& context) { native::mul_out(context, *x, *column, *flexible); });
  expect(Error::InvalidArgument, "integers",
         [&](auto& context) { native::muladd_out(context, *x, *integers, 1, *out); });
  expect(Error::InvalidArgument, "shapes", [&](auto& context) { native::fma_out(context, *x, *x, *other, *out); });
  expect(Error::InvalidArgument, "narrow out", [&](auto& context) { native::add_out(context, *x, *wide, *out); });
  expect(Error::InvalidArgument, "wide out", [&](auto& context) { native::scale_out(context, *x, 2, *wide); });
  expect(Error::InvalidArgument, "small out", [&](auto& context) { native::scale_out(context, *x, 2, *small); });
  expect(Error::InvalidArgument, "rank of out",
         [&](auto& context) { native::scale_out(context, *x, 2, *one_dimension); });
  if (flexible->size(0) != 2 || flexible->size(1) != 3) ++failures;
  return failures;
}
