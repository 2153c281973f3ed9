// Loops over rows on a SYCL device, under the names that they have on the host (opwheel/cpu/rows.h) and in CUDA
// (opwheel/cuda/rows.cuh). A work-group works on one row at a time: its work-items share the row's elements and combine
// what they find. A kernel is a functor over an element type (opwheel/detail/xpu/device/element.h), in a header that
// device and host compile:
//
//     namespace xpu = opwheel::xpu;
//
//     template <class E>
//     struct Normalize {
//       static constexpr char name[] = "normalize";
//       const typename E::Storage* x;
//       typename E::Storage* y;
//       int64_t length;
//
//       void operator()(int64_t row) const {
//         using Acc = typename E::Compute;  // double for float64, float for all others
//         const auto in = [&](int64_t k) { return E::load(x[row * length + k]); };
//         const Acc squares = xpu::sum<Acc>(length, [&](int64_t k) { return in(k) * in(k); });
//         const Acc norm = sycl::sqrt(squares);
//         xpu::for_each(length, [&](int64_t k) { y[row * length + k] = E::store(in(k) / norm); });
//       }
//     };
//
// The device code has a line for it, compiled once for each dtype (opwheel/xpu/device/elementwise.h), and the host's
// code a launch (opwheel/xpu/rows.h):
//
//     OPWHEEL_XPU_ROWS(normalize, Normalize, DTYPE)
//
//     xpu::for_rows(device_of(x), rows, length, Normalize<E>{data<Storage>(x), data<Storage>(y), length});
//
// Functions of mathematics are SYCL's. All work-items of a group must make the same calls of reduce, sum, maximum and
// barrier: none of these may depend on the work-item, as the function that is given to for_each does.
#pragma once

#include <cstdint>
#include <string_view>
#include <sycl/sycl.hpp>
#include <type_traits>

// IWYU pragma: begin_exports
#include "opwheel/detail/combine.h"
#include "opwheel/detail/row_functor.h"
#include "opwheel/detail/xpu/device/element.h"
// IWYU pragma: end_exports

namespace opwheel::xpu {

using opwheel::Scratch;

constexpr int kSubGroup = 16;    // work-items; a size of Intel's Xe GPUs
constexpr int kMostItems = 256;  // in a work-group

namespace detail {

inline auto work_group() { return sycl::ext::oneapi::this_work_item::get_work_group<1>(); }
inline auto sub_group() { return sycl::ext::oneapi::this_work_item::get_sub_group(); }

template <class T>
using OnChip = sycl::ext::oneapi::experimental::work_group_static<T>;

}  // namespace detail

// Waits until all work-items of the group have come here. What they wrote before, all read behind it.
inline void barrier() { sycl::group_barrier(detail::work_group()); }

// Calls element(k) for 0 <= k < length, each in one work-item of the group.
template <class Element>
void for_each(int64_t length, const Element& element) {
  const auto group = detail::work_group();
  const auto step = static_cast<int64_t>(group.get_local_linear_range());
  for (auto k = static_cast<int64_t>(group.get_local_linear_id()); k < length; k += step) element(k);
}

namespace detail {

template <class Acc, class Combine>
Acc reduce_sub_group(Acc value, const Combine& combine) {
  for (int step = kSubGroup / 2; step > 0; step /= 2) {
    value = combine(value, sycl::permute_group_by_xor(sub_group(), value, step));
  }
  return value;
}

// What each sub-group has found: the same memory for all reductions of a kernel.
template <class Acc>
Acc* results_of_sub_groups() {
  static OnChip<Acc[kMostItems / kSubGroup]> of_sub_groups;
  return of_sub_groups;
}

template <class Acc, class Combine>
Acc reduce_group(Acc value, Acc start, const Combine& combine) {
  Acc* const of_sub_groups = results_of_sub_groups<Acc>();
  const auto lane = sub_group().get_local_linear_id();
  value = reduce_sub_group(value, combine);
  barrier();  // the reduction before this one has been read
  if (lane == 0) of_sub_groups[sub_group().get_group_linear_id()] = value;
  barrier();
  return reduce_sub_group(lane < sub_group().get_group_linear_range() ? of_sub_groups[lane] : start, combine);
}

}  // namespace detail

// Combines value(0) ... value(count - 1); every work-item of the group gets the result. `combine` must be associative
// and commutative, `start` neutral. The order is the same in every call.
template <class Acc, class Value, class Combine>
Acc reduce(int64_t count, Acc start, const Value& value, const Combine& combine) {
  Acc mine = start;
  for_each(count, [&](int64_t k) { mine = combine(mine, static_cast<Acc>(value(k))); });
  return detail::reduce_group(mine, start, combine);
}

#define OPWHEEL_DETAIL_REDUCTION inline
#include "opwheel/detail/reductions.inc.h"

namespace detail {

template <class F>
void run_rows(const F& functor, int64_t rows, int64_t length, void* scratch) {
  using T = ScratchElement<F>;
  const auto group = static_cast<int64_t>(work_group().get_group_linear_id());
  const auto groups = static_cast<int64_t>(work_group().get_group_linear_range());
  if constexpr (std::is_void_v<T>) {
    for (int64_t row = group; row < rows; row += groups) functor(row);
  } else {
    static OnChip<T[kOnChipBytes / sizeof(T)]> on_chip;
    T* const memory = scratch == nullptr ? static_cast<T*>(on_chip) : static_cast<T*>(scratch) + group * length;
    for (int64_t row = group; row < rows; row += groups) {
      functor(row, Scratch<T>{memory});
      barrier();  // before the next row is written there
    }
  }
}

}  // namespace detail
}  // namespace opwheel::xpu

// Defines the kernel of a functor, under the functor's name, for one dtype: float16, bfloat16, float32 or float64.
#define OPWHEEL_XPU_ROWS(identifier, Functor, dtype)                                                           \
  static_assert(std::string_view(Functor<::opwheel::xpu::dtype>::name) == #identifier,                         \
                "opwheel: " #Functor                                                                           \
                " has another name than its kernel, by which the host finds it: write "                        \
                "static constexpr char name[] = \"" #identifier "\" in it");                                   \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>))          \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                                                                       \
          (sycl::ext::oneapi::experimental::sub_group_size<::opwheel::xpu::kSubGroup>)) void                   \
      identifier##_rows(Functor<::opwheel::xpu::dtype> functor, int64_t rows, int64_t length, void* scratch) { \
    ::opwheel::xpu::detail::run_rows(functor, rows, length, scratch);                                          \
  }
