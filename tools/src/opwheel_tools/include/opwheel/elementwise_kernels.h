// Kernels of a library's element-wise operators, functional, out and in-place variants, for any backend that can launch
// a plan. A Backend is a type with
//     static int32_t device_type();                                // as aoti_torch_device_type_*() gives it
//     template <class Op, class... Params>
//     static void launch(const ElementwisePlan& plan, Params...);  // only called with plan.numel > 0
// where Op::Functor<C>(params...) computes one element in the compute type C (opwheel/functor.h). What launch throws
// reaches the caller behind a code (opwheel/detail/error.h) and the operator's name; the call is not made again.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/HeaderOnlyArrayRef.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "opwheel/detail/overlap.h"
#include "opwheel/detail/registration.h"

// IWYU pragma: begin_exports
#include "opwheel/detail/device_guard.h"
#include "opwheel/detail/dtype.h"
#include "opwheel/detail/elementwise.h"
#include "opwheel/detail/indexing_32bit.h"
#include "opwheel/detail/offset_calculator.h"
#include "opwheel/detail/reference_loop.h"
#include "opwheel/functor.h"
#include "opwheel/operators.h"
// IWYU pragma: end_exports

namespace opwheel {

using Inputs = std::span<const Tensor* const>;  // in the schema's order

namespace detail {

// One copy for all operators of a library, not one within the kernel of each: what the operator before has run is in
// the processor's caches.
__attribute__((noinline)) inline ElementwisePlan plan_inputs(const Schema& schema, Inputs inputs, int output_count,
                                                             int32_t device_type) {
  ElementwisePlan plan(schema.name, output_count);
  auto tensor = inputs.begin();
  for (const Argument& argument : schema.arguments) {
    if (tensor == inputs.end()) break;
    if (argument.kind != ArgumentKind::number) plan.add_input(argument.name, **tensor++);
  }
  plan.infer(device_type);
  return plan;
}

inline Tensor new_output(ElementwisePlan& plan) {
  int64_t strides[kMaxDims];
  plan.new_output_strides(strides);
  return Tensor::empty(plan.ndim, plan.sizes, strides, plan.dtype, plan.device);
}

// The plan of a call that gives new results, which it allocates. One copy, as plan_inputs().
__attribute__((noinline)) inline ElementwisePlan plan_new(const Schema& schema, Inputs inputs,
                                                          std::span<Tensor> results, int32_t device_type) {
  // 1. Check the inputs; infer shape, dtype and device.
  ElementwisePlan plan = plan_inputs(schema, inputs, static_cast<int>(results.size()), device_type);
  // 2. Allocate.
  for (Tensor& result : results) result = new_output(plan);
  // 3. Order the loops.
  if (plan.is_flat()) {
    plan.finish_flat(results);
    return plan;
  }
  for (std::size_t i = 0; i < results.size(); ++i) plan.set_output(static_cast<int>(i), "result", results[i]);
  if (plan.numel > 0) plan.finish();
  return plan;
}

using List = torch::headeronly::HeaderOnlyArrayRef<int64_t>;

// PyTorch takes over the reference.
inline StableIValue on_stack(const Tensor& tensor) {
  AtenTensorHandle reference = nullptr;
  OPWHEEL_SHIM(aoti_torch_new_tensor_handle(tensor.handle(), &reference));
  return torch::stable::detail::from(reference);
}
inline StableIValue on_stack(const List& list) { return torch::stable::detail::from(list); }
inline StableIValue on_stack(std::nullopt_t none) { return torch::stable::detail::from(none); }

// The result of an operator of ATen; without a handle if it failed, for a reason that the C interface keeps to itself.
template <class... Arguments>
Tensor call(const char* name, const Arguments&... arguments) {
  StableIValue stack[] = {on_stack(arguments)...};
  if (torch_call_dispatcher(name, "", stack, TORCH_ABI_VERSION) != 0) return Tensor();
  return Tensor(torch::stable::detail::to<AtenTensorHandle>(stack[0]));
}

inline void restride(const Tensor& tensor, const List& sizes, const List& strides) {
  if (call("aten::as_strided_", tensor, sizes, strides, std::nullopt).handle() == nullptr) {
    fail(
        "an empty tensor was given for the result, and PyTorch refuses it the result's strides; pass a tensor of the "
        "result's shape");
  }
}

// An empty tensor given as out= takes the shape and the strides that a new result would have. This is its memory in
// that shape: a tensor of its own, because resize_ changes the sizes first, and leaves them where the memory cannot
// grow.
inline Tensor grown(ElementwisePlan& plan, std::string_view name, const Tensor& out) {
  int64_t buffer[kMaxDims];
  plan.new_output_strides(buffer);
  const auto ndim = static_cast<std::size_t>(plan.ndim);
  const List sizes(plan.sizes, ndim), strides(buffer, ndim);
  Tensor alias = call("aten::alias", out);
  if (alias.handle() == nullptr || call("aten::resize_", alias, sizes, std::nullopt).handle() == nullptr) {
    Tensor::empty(plan.ndim, plan.sizes, buffer, plan.dtype, plan.device);  // says so where there is no memory
    fail(plan.operator_name(), ": '", name, "' is empty, and its memory cannot grow to the result's shape ",
         shape_text(plan.ndim, plan.sizes), ": Trying to resize storage that is not resizable. It belongs to somebody ",
         "else, such as NumPy; pass a tensor of that shape");
  }
  restride(alias, sizes, strides);
  return alias;
}

inline void take_shape(const Tensor& out, const Tensor& grown) {
  const TensorInfo info(grown);
  const auto ndim = static_cast<std::size_t>(info.ndim);
  restride(out, List(info.sizes, ndim), List(info.strides, ndim));
}

// Validates output 0 of the plan, which the caller brought along. Where PyTorch would resize it, the result goes into
// the tensor that is returned, and `out` has to take its shape; otherwise that has no handle.
inline Tensor bind_output(ElementwisePlan& plan, std::string_view name, const Tensor& out, bool may_resize,
                          int32_t device_type) {
  plan.set_output(0, name, out);
  const auto& output = plan.output(0);
  plan.check_device(output, device_type);
  if (output.info.dtype != plan.dtype) {
    fail(plan.operator_name(), ": '", name, "' is ", dtype_name(output.info.dtype_code), ", but the result is ",
         dtype_name(code_of(plan.dtype)), "; '", name, "' must have exactly the result's dtype");
  }
  if (has_shape(output.info, plan.ndim, plan.sizes)) return Tensor();
  if (!may_resize || output.info.numel != 0) {
    fail(plan.operator_name(), ": '", name, "' has shape ", output.info, ", but the result has shape ",
         shape_text(plan.ndim, plan.sizes),
         may_resize ? "; pass a tensor of that shape, or an empty one to be resized"
                    : "; nothing is resized in place: call the operator that gives a new result");
  }
  return grown(plan, name, out);
}

// Whether the result must be computed elsewhere first. Throws where PyTorch refuses, too.
inline bool needs_staging(const ElementwisePlan& plan) {
  const auto& output = plan.output(0);
  if (may_overlap_itself(output.info)) {
    fail(plan.operator_name(), ": several elements of '", output.name,
         "' share one place in memory (an expanded or overlapping view); pass a tensor of its own, for instance its "
         ".clone()");
  }
  bool staging = false;
  for (int i = 0; i < plan.input_count(); ++i) {
    const Overlap found = overlap(plan, output, plan.input(i));
    if (found == Overlap::partial) {
      fail(plan.operator_name(), ": '", output.name, "' and '", plan.input(i).name,
           "' share memory without being the same elements; clone one of them first");
    }
    staging |= found == Overlap::unknown;
  }
  return staging;
}

}  // namespace detail

// New results: one Tensor, or a std::array of them.
template <class Op, class Backend, class... Params>
auto functional(Inputs inputs, Params... params) {
  constexpr int count = Op::schema.returns_argument ? 1 : Op::schema.return_count;
  std::array<Tensor, count> results;
  const ElementwisePlan plan = detail::plan_new(Op::schema, inputs, results, Backend::device_type());
  if (plan.numel > 0) launching([&] { Backend::template launch<Op>(plan, params...); });
  if constexpr (count == 1) {
    return std::move(results[0]);
  } else {
    return results;
  }
}

// The result goes into a tensor of the caller's: out= or the first argument of an in-place operator.
template <class Op, class Backend, class... Params>
void mutating(const Tensor& out, Inputs inputs, Params... params) {
  constexpr Argument target = Op::schema.arguments[detail::mutable_argument<Op>()];
  constexpr bool in_place = detail::mutable_argument<Op>() == 0;
  // 1. Check inputs and output; no tensor has changed when one of these throws.
  ElementwisePlan plan = detail::plan_inputs(Op::schema, inputs, 1, Backend::device_type());
  const Tensor grown = detail::bind_output(plan, target.name, out, !in_place, Backend::device_type());
  const bool resized = grown.handle() != nullptr;
  const bool empty = plan.numel == 0;
  Tensor staged;
  if (!empty) {
    if (resized) {  // which moves the memory that it shares with an input
      plan = detail::plan_inputs(Op::schema, inputs, 1, Backend::device_type());
      plan.set_output(0, target.name, grown);
    }
    plan.finish();
    if (detail::needs_staging(plan)) staged = functional<Op, Backend>(inputs, params...);
  }
  // 2. Write.
  if (resized) detail::take_shape(out, grown);
  if (empty) return;
  launching([&] {
    if (staged.handle() == nullptr) return Backend::template launch<Op>(plan, params...);
    OPWHEEL_SHIM(aoti_torch_copy_(out.handle(), staged.handle(), 0));
  });
}

namespace detail {

inline const Tensor* tensor_of(const Tensor& tensor) { return &tensor; }
inline const Tensor* tensor_of(double) { return nullptr; }
inline std::tuple<> number_of(const Tensor&) { return {}; }
inline std::tuple<double> number_of(double number) { return {number}; }

}  // namespace detail

// The kernel of an operator for a backend, with the C++ signature that follows from its schema. A backend that has
// something better for an operator specialises this struct for it.
template <class Op, class Backend, class = Signature<Op>>
struct Kernel;

template <class Op, class Backend, class Result, class... Arguments>
struct Kernel<Op, Backend, Result(Arguments...)> {
  static Result call(Arguments... arguments) {
    using Traits = FunctorTraits<typename Op::template Functor<float>>;
    constexpr std::size_t target = detail::mutable_argument<Op>();
    constexpr bool is_out = Op::schema.returns_argument && target != 0;
    static_assert(detail::tensor_count<Op>() - is_out == Traits::kInputs,
                  "opwheel: the functor takes another number of elements than the schema has tensors; give its "
                  "operator() one parameter for each Tensor that is not an output (opwheel/functor.h)");
    static_assert(Op::schema.return_count == Traits::kOutputs,
                  "opwheel: the functor gives another number of results than the schema; return one C for a Tensor, "
                  "Results<C, N> for several (opwheel/functor.h)");

    const Tensor* given[] = {detail::tensor_of(arguments)...};
    const Tensor* inputs[Traits::kInputs];
    int count = 0;
    for (std::size_t i = 0; i < sizeof...(Arguments); ++i) {
      if (given[i] != nullptr && !(is_out && i == target)) inputs[count++] = given[i];
    }
    return std::apply(
        [&](auto... numbers) -> Result {
          static_assert(sizeof...(numbers) <= kMaxParameters,
                        "opwheel: this element-wise operator has more than 4 numbers; list it as a KERNEL "
                        "(opwheel/kernels.h)");
          if constexpr (Op::schema.returns_argument) {
            mutating<Op, Backend>(*given[target], inputs, numbers...);
          } else {
            return functional<Op, Backend>(inputs, numbers...);
          }
        },
        std::tuple_cat(detail::number_of(arguments)...));
  }
};

// Registers the kernel of every operator of the list.
template <class Backend, class... Operators>
void implement_all(KernelRegistry& registry, OperatorList<Operators...>) {
  (implement<Operators, &Kernel<Operators, Backend>::call>(registry), ...);
}

}  // namespace opwheel

// A backend's whole registration block: every operator that OPWHEEL_DECLARE_OPERATORS declared for the library.
#define OPWHEEL_LIBRARY_IMPL(library, dispatch_key, Backend) \
  OPWHEEL_KERNELS(library, dispatch_key, m) { ::opwheel::implement_all<Backend>(m, library::op::Operators()); }
