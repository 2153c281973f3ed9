// From the plan to launches: which kernel, with which parameters, in how many parts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "opwheel/detail/cuda/elementwise.h"
#include "opwheel/detail/elementwise.h"
#include "opwheel/detail/indexing_32bit.h"

namespace opwheel::cuda {

namespace detail {

inline bool has_one_dtype(const ElementwisePlan& plan) {
  return std::all_of(plan.operands, plan.operands + plan.operand_count,
                     [&](const ElementwisePlan::Operand& operand) { return operand.info.dtype == plan.dtype; });
}

inline uintptr_t misalignment(const char* data) { return reinterpret_cast<uintptr_t>(data) % 16; }

// All operands are one run of elements, and boundaries of 16 bytes are at the same elements in all of them.
inline bool is_one_run(const ElementwisePlan& plan) {
  const int64_t size = element_size(plan.dtype);
  return plan.ndim <= 1 &&
         std::all_of(plan.operands, plan.operands + plan.operand_count, [&](const ElementwisePlan::Operand& operand) {
           return (plan.numel == 1 || operand.strides[0] == size) &&
                  misalignment(operand.data) == misalignment(plan.operands[0].data);
         });
}

// Along a row each operand is contiguous and aligned, or one element repeated; the outputs are never repeated.
inline bool has_vector_rows(const ElementwisePlan& plan) {
  const int64_t size = element_size(plan.dtype);
  if (plan.ndim == 0 || plan.sizes[0] * size % 16 != 0) return false;
  return std::all_of(plan.operands, plan.operands + plan.operand_count, [&](const ElementwisePlan::Operand& operand) {
    const bool is_output = &operand < plan.operands + plan.output_count;
    if (operand.strides[0] == 0) return !is_output;
    return operand.strides[0] == size && misalignment(operand.data) == 0 &&
           std::all_of(operand.strides + 1, operand.strides + plan.ndim,
                       [](int64_t stride) { return stride % 16 == 0; });
  });
}

template <class Kernel>
uint32_t blocks_for(int64_t items) {
  constexpr int64_t tile = kTile<Kernel::kUnroll>;
  return static_cast<uint32_t>(std::max<int64_t>((items + tile - 1) / tile, 1));
}

template <class T, class F>
Contiguous<T, F> contiguous_kernel(const ElementwisePlan& plan, const F& functor) {
  using Traits = FunctorTraits<F>;
  Contiguous<T, F> kernel{functor, {}, {}, plan.numel, 0};
  for (int i = 0; i < Traits::kOutputs; ++i) kernel.outputs[i] = reinterpret_cast<T*>(plan.output(i).data);
  for (int i = 0; i < Traits::kInputs; ++i) kernel.inputs[i] = reinterpret_cast<const T*>(plan.input(i).data);
  const int64_t to_boundary = static_cast<int64_t>((16 - misalignment(plan.operands[0].data)) % 16 / sizeof(T));
  kernel.head = std::min(to_boundary, plan.numel);
  return kernel;
}

template <class Item, class F>
Strided<Item, F> strided_kernel(const ElementwisePlan& part, const F& functor, int64_t lanes) {
  using Traits = FunctorTraits<F>;
  Strided<Item, F> kernel{
      functor, static_cast<uint32_t>(part.numel / lanes), offset_calculator<Traits::kOperands>(part, lanes), {}, {}};
  for (int i = 0; i < Traits::kOperands; ++i) kernel.data[i] = part.operands[i].data;
  return kernel;
}

}  // namespace detail

// Device has `template <class Kernel> void enqueue(const Kernel&, uint32_t blocks)`.
template <class T, class F, class Device>
void launch(const ElementwisePlan& plan, const F& functor, Device& device) {
  const bool one_dtype = detail::has_one_dtype(plan);
  if (one_dtype && detail::is_one_run(plan)) {
    const Contiguous<T, F> kernel = detail::contiguous_kernel<T>(plan, functor);
    return device.enqueue(kernel, detail::blocks_for<Contiguous<T, F>>(kernel.vectors()));
  }
  with_32bit_indexing(plan, [&](const ElementwisePlan& part) {
    if (one_dtype && detail::has_vector_rows(part)) {
      using Kernel = Strided<RowVector<T>, F>;
      Kernel kernel = detail::strided_kernel<RowVector<T>>(part, functor, Vector<T>::kLanes);
      for (int i = 0; i < part.input_count(); ++i) {
        kernel.forms[i] = part.input(i).strides[0] == 0 ? Row::repeated : Row::contiguous;
      }
      device.enqueue(kernel, detail::blocks_for<Kernel>(kernel.count));
    } else {
      using Kernel = Strided<Element<T>, F>;
      Kernel kernel = detail::strided_kernel<Element<T>>(part, functor, 1);
      for (int i = 0; i < part.input_count(); ++i) kernel.forms[i] = part.input(i).info.dtype;
      device.enqueue(kernel, detail::blocks_for<Kernel>(kernel.count));
    }
  });
}

}  // namespace opwheel::cuda
