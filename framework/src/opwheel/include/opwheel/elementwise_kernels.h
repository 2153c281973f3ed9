// Kernels of a library's element-wise operators, functional, out and in-place variants, for any backend that can launch
// a plan. A Backend is a type with
//     static int32_t device_type();                                // as aoti_torch_device_type_*() gives it
//     template <class Op, class... Params>
//     static void launch(const ElementwisePlan& plan, Params...);  // only called with plan.numel > 0
// where Op::Functor<C>(params...) computes one element in the compute type C (opwheel/functor.h).
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/HeaderOnlyArrayRef.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "opwheel/elementwise.h"
#include "opwheel/operators.h"
#include "opwheel/overlap.h"
#include "opwheel/registration.h"

namespace opwheel {

using Inputs = std::span<const Tensor* const>;  // in the schema's order

namespace detail {

template <class Op>
ElementwisePlan plan_inputs(Inputs inputs, int output_count, int32_t device_type) {
  ElementwisePlan plan(Op::schema.name, output_count);
  auto tensor = inputs.begin();
  for (const Argument& argument : Op::schema.arguments) {
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

// An empty tensor given as out= takes the shape and the strides that a new result would have.
inline void resize_output(ElementwisePlan& plan, std::string_view name, const Tensor& out) {
  namespace stable = torch::stable::detail;
  using List = torch::headeronly::HeaderOnlyArrayRef<int64_t>;
  int64_t strides[kMaxDims];
  plan.new_output_strides(strides);
  const auto ndim = static_cast<std::size_t>(plan.ndim);

  AtenTensorHandle self = nullptr;
  OPWHEEL_SHIM(aoti_torch_new_tensor_handle(out.handle(), &self));
  StableIValue resize[] = {stable::from(self), stable::from(List(plan.sizes, ndim)), stable::from(std::nullopt)};
  if (torch_call_dispatcher("aten::resize_", "", resize, TORCH_ABI_VERSION) != 0) {
    // The words are known to opwheel/dispatch/memory.py and direct.py: PyTorch has changed the sizes already.
    fail(plan.operator_name(), ": '", name, "' could not be resized to ", plan.numel, " elements of ",
         dtype_name(code_of(plan.dtype)), " on ", plan.device.name(),
         ": there is no memory, or its memory belongs to another library, such as NumPy; pass a tensor of the result's "
         "shape");
  }
  StableIValue restride[] = {resize[0], stable::from(List(plan.sizes, ndim)), stable::from(List(strides, ndim)),
                             stable::from(std::nullopt)};
  OPWHEEL_SHIM(torch_call_dispatcher("aten::as_strided_", "", restride, TORCH_ABI_VERSION));
  Tensor returned(stable::to<AtenTensorHandle>(restride[0]));
}

inline bool has_result_shape(const ElementwisePlan& plan, const TensorInfo& output) {
  return output.ndim == plan.ndim && std::equal(plan.sizes, plan.sizes + plan.ndim, output.sizes);
}

// Validates output 0 of the plan, which the caller brought along; resizes it where PyTorch would, and says whether.
inline bool bind_output(ElementwisePlan& plan, std::string_view name, const Tensor& out, bool may_resize,
                        int32_t device_type) {
  plan.set_output(0, name, out);
  const auto& output = plan.output(0);
  plan.check_device(output, device_type);
  if (output.info.dtype != plan.dtype) {
    fail(plan.operator_name(), ": '", name, "' is ", dtype_name(output.info.dtype_code), ", but the result is ",
         dtype_name(code_of(plan.dtype)), "; '", name, "' must have exactly the result's dtype");
  }
  if (has_result_shape(plan, output.info)) return false;
  if (!may_resize || output.info.numel != 0) {
    std::string result_shape = "(";
    for (int d = 0; d < plan.ndim; ++d) result_shape += (d == 0 ? "" : ", ") + std::to_string(plan.sizes[d]);
    fail(plan.operator_name(), ": '", name, "' has shape ", output.info, ", but the result has shape ", result_shape,
         plan.ndim == 1 ? ",)" : ")", may_resize ? "; pass a tensor of that shape, or an empty one to be resized" : "");
  }
  resize_output(plan, name, out);
  plan.set_output(0, name, out);
  return true;
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
  // 1. Check the inputs; infer shape, dtype and device.
  ElementwisePlan plan = detail::plan_inputs<Op>(inputs, count, Backend::device_type());
  // 2. Allocate.
  for (Tensor& result : results) result = detail::new_output(plan);
  for (int i = 0; i < count; ++i) plan.set_output(i, "result", results[i]);
  // 3. Order the loops and launch.
  if (plan.numel > 0) {
    plan.finish();
    Backend::template launch<Op>(plan, params...);
  }
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
  // 1. Check inputs and output; nothing has been written when one of these throws.
  ElementwisePlan plan = detail::plan_inputs<Op>(inputs, 1, Backend::device_type());
  const bool resized = detail::bind_output(plan, target.name, out, !in_place, Backend::device_type());
  if (plan.numel == 0) return;
  if (resized) {  // which moves the memory that it shares with an input
    plan = detail::plan_inputs<Op>(inputs, 1, Backend::device_type());
    plan.set_output(0, target.name, out);
  }
  plan.finish();
  if (detail::needs_staging(plan)) {
    const Tensor result = functional<Op, Backend>(inputs, params...);
    OPWHEEL_SHIM(aoti_torch_copy_(out.handle(), result.handle(), 0));
    return;
  }
  // 2. Launch.
  Backend::template launch<Op>(plan, params...);
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
                  "opwheel: the functor takes another number of elements than the schema has tensors");
    static_assert(Op::schema.return_count == Traits::kOutputs,
                  "opwheel: the functor gives another number of results than the schema");

    const Tensor* given[] = {detail::tensor_of(arguments)...};
    const Tensor* inputs[Traits::kInputs];
    int count = 0;
    for (std::size_t i = 0; i < sizeof...(Arguments); ++i) {
      if (given[i] != nullptr && !(is_out && i == target)) inputs[count++] = given[i];
    }
    return std::apply(
        [&](auto... numbers) -> Result {
          static_assert(sizeof...(numbers) <= kMaxParameters, "opwheel: an operator may have 4 numbers at most");
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
void implement_all(torch::stable::detail::StableLibrary& library, OperatorList<Operators...>) {
  (implement<Operators, &Kernel<Operators, Backend>::call>(library), ...);
}

}  // namespace opwheel

// A backend's whole registration block: every operator that OPWHEEL_DECLARE_OPERATORS declared for the library.
#define OPWHEEL_LIBRARY_IMPL(library, dispatch_key, Backend)        \
  STABLE_TORCH_LIBRARY_IMPL(library, dispatch_key, m) {             \
    ::opwheel::implement_all<Backend>(m, library::op::Operators()); \
  }
