// What opwheel/elementwise_kernels.h needs to know of this device: its type and how to run a plan.
#pragma once

#include <cstdint>
#include <type_traits>

#include "capability.h"
#include "muladd/arithmetic.h"
#include "opwheel/elementwise.h"
#include "row.h"
#include "rows.h"

namespace muladd::cpu {

template <template <class> class Functor>
struct FunctionOf;
template <>
struct FunctionOf<MulAdd> {
  static constexpr Function value = Function::muladd;
};
template <>
struct FunctionOf<MulAddBackward> {
  static constexpr Function value = Function::muladd_backward;
};
template <>
struct FunctionOf<Fma> {
  static constexpr Function value = Function::fma;
};
template <>
struct FunctionOf<Mul> {
  static constexpr Function value = Function::mul;
};
template <>
struct FunctionOf<Add> {
  static constexpr Function value = Function::add;
};
template <>
struct FunctionOf<Scale> {
  static constexpr Function value = Function::scale;
};

struct Backend {
  static int32_t device_type() { return aoti_torch_device_type_cpu(); }

  template <template <class> class Functor, class... Params>
  static void launch(const ElementwisePlan& plan, Params... params) {
    static_assert(sizeof...(params) <= 1, "a RowSpec has room for one");
    double parameter = 0;
    ((parameter = params), ...);
    launch(plan, FunctionOf<Functor>::value, parameter);
  }

 private:
  static void launch(const ElementwisePlan& plan, Function function, double parameter) {
    RowSpec spec{.steps = {}, .row_steps = {}, .types = {}, .parameter = parameter, .stream = should_stream(plan)};
    for (int i = 0; i < plan.operand_count; ++i) {
      spec.steps[i] = plan.ndim == 0 ? 0 : plan.operands[i].strides[0];
      spec.row_steps[i] = plan.ndim < 2 ? 0 : plan.operands[i].strides[1];
      spec.types[i] = type_of(plan.operands[i].info.dtype);
    }
    const Rows compute = choose_rows()(function, type_of(plan.dtype), spec);
    parallel_runs(plan, [&](char* const* data, int64_t n, int64_t rows) { compute(spec, data, n, rows); });
  }

  static Type type_of(DType dtype) { return static_cast<Type>(dtype); }

  // Results that fill the cache push out what is needed sooner, and fetch their own old contents first. In place those
  // contents are needed, and short rows are all ends.
  static bool should_stream(const ElementwisePlan& plan) {
    constexpr int64_t kShortest = 1024;  // bytes
    int64_t bytes = 0;
    for (int i = 0; i < plan.operand_count; ++i) bytes += plan.operands[i].info.numel * element_size(plan.dtype);
    if (bytes <= last_level_cache()) return false;
    for (int i = 0; i < plan.input_count(); ++i) {
      if (plan.input(i).data == plan.output(0).data) return false;
    }
    return plan.sizes[0] * element_size(plan.dtype) >= kShortest;
  }
};

static_assert(static_cast<int>(Type::float16) == static_cast<int>(DType::float16) &&
              static_cast<int>(Type::bfloat16) == static_cast<int>(DType::bfloat16) &&
              static_cast<int>(Type::float32) == static_cast<int>(DType::float32) &&
              static_cast<int>(Type::float64) == static_cast<int>(DType::float64));

}  // namespace muladd::cpu
