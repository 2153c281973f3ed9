// From the plan to launches: which kernel, with which parameters, in how many slabs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "index.h"
#include "kernels.h"
#include "opwheel/elementwise.h"

namespace muladd::cuda {

// From an operand's first byte to one past its last.
inline int64_t reach(const ElementwisePlan& plan, const ElementwisePlan::Operand& operand) {
  int64_t bytes = element_size(operand.info.dtype);
  for (int d = 0; d < plan.ndim; ++d) bytes += (plan.sizes[d] - 1) * operand.strides[d];
  return bytes;
}

inline bool fits_one_slab(const ElementwisePlan& plan, int64_t max_elements, int64_t max_reach) {
  return plan.numel <= max_elements &&
         std::all_of(plan.operands, plan.operands + plan.operand_count,
                     [&](const ElementwisePlan::Operand& operand) { return reach(plan, operand) <= max_reach; });
}

// The dimension along which the plan extends furthest, in bytes of any operand.
inline int longest_dimension(const ElementwisePlan& plan) {
  int longest = 0;
  int64_t longest_extent = -1;
  for (int d = 0; d < plan.ndim; ++d) {
    for (int i = 0; i < plan.operand_count; ++i) {
      const int64_t extent = (plan.sizes[d] - 1) * plan.operands[i].strides[d];
      if (extent > longest_extent) {
        longest = d;
        longest_extent = extent;
      }
    }
  }
  return longest;
}

// Calls body with parts of the plan that are small enough for 32-bit indices. Most plans are, as they are.
template <class Body>
void for_each_slab(const ElementwisePlan& plan, const Body& body, int64_t max_elements = kMaxElements,
                   int64_t max_reach = kMaxReach) {
  if (fits_one_slab(plan, max_elements, max_reach)) return body(plan);
  const int d = longest_dimension(plan);
  // A multiple of 16 elements keeps both parts aligned as the whole was.
  const int64_t half = plan.sizes[d] / 2;
  const int64_t cut = half >= 16 ? half / 16 * 16 : half;
  ElementwisePlan part = plan;
  part.sizes[d] = cut;
  part.numel = plan.numel / plan.sizes[d] * cut;
  for_each_slab(part, body, max_elements, max_reach);
  part.sizes[d] = plan.sizes[d] - cut;
  part.numel = plan.numel - part.numel;
  for (int i = 0; i < part.operand_count; ++i) part.operands[i].data += cut * plan.operands[i].strides[d];
  for_each_slab(part, body, max_elements, max_reach);
}

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

// `lanes` elements of the innermost dimension make an item.
template <int kOperands>
Walk<kOperands> walk_of(const ElementwisePlan& slab, int64_t lanes) {
  Walk<kOperands> walk;
  int ndim = 0;
  for (int d = 0; d < slab.ndim; ++d) {
    const int64_t items = d == 0 ? lanes : 1;
    if (slab.sizes[d] == items) continue;
    walk.sizes[ndim] = Divider(static_cast<uint32_t>(slab.sizes[d] / items));
    for (int i = 0; i < kOperands; ++i) {
      walk.strides[ndim][i] = static_cast<uint32_t>(slab.operands[i].strides[d] * items);
    }
    ++ndim;
  }
  walk.ndim = std::max(ndim, 1);
  return walk;
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
Strided<Item, F> strided_kernel(const ElementwisePlan& slab, const F& functor, int64_t lanes) {
  using Traits = FunctorTraits<F>;
  Strided<Item, F> kernel{
      functor, static_cast<uint32_t>(slab.numel / lanes), walk_of<Traits::kOperands>(slab, lanes), {}, {}};
  for (int i = 0; i < Traits::kOperands; ++i) kernel.data[i] = slab.operands[i].data;
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
  for_each_slab(plan, [&](const ElementwisePlan& slab) {
    if (one_dtype && detail::has_vector_rows(slab)) {
      using Kernel = Strided<RowVector<T>, F>;
      Kernel kernel = detail::strided_kernel<RowVector<T>>(slab, functor, Vector<T>::kLanes);
      for (int i = 0; i < slab.input_count(); ++i) {
        kernel.forms[i] = slab.input(i).strides[0] == 0 ? Row::repeated : Row::contiguous;
      }
      device.enqueue(kernel, detail::blocks_for<Kernel>(kernel.count));
    } else {
      using Kernel = Strided<Element<T>, F>;
      Kernel kernel = detail::strided_kernel<Element<T>>(slab, functor, 1);
      for (int i = 0; i < slab.input_count(); ++i) kernel.forms[i] = slab.input(i).info.dtype;
      device.enqueue(kernel, detail::blocks_for<Kernel>(kernel.count));
    }
  });
}

}  // namespace muladd::cuda
