// Launches loops over rows on a SYCL device. opwheel/xpu/device/rows.h shows a whole kernel.
#pragma once

#include <cstdint>
#include <string>
#include <sycl/sycl.hpp>

#include "opwheel/detail/device_guard.h"
#include "opwheel/detail/dtypes.h"
#include "opwheel/detail/row_groups.h"
#include "opwheel/detail/xpu/kernel_bundle.h"

// IWYU pragma: begin_exports
#include "opwheel/detail/xpu/queue.h"
#include "opwheel/xpu/device/rows.h"
// IWYU pragma: end_exports

namespace opwheel::xpu {
namespace detail {

float16 element_of(Half);
bfloat16 element_of(BFloat16);
float32 element_of(float);
float64 element_of(double);

}  // namespace detail

// What device code calls the dtype of a C++ type that dispatch() gives.
template <class T>
using Element = decltype(detail::element_of(T()));

// Calls functor(row), or functor(row, Scratch<T>), for 0 <= row < rows on PyTorch's current stream of the device, and
// does not wait. `length` is that of a row: of Scratch; a work-group's size depends on it. The functor is copied to
// the device: its pointers must be to the device's memory.
template <template <class> class F, class E>
void for_rows(Device device, int64_t rows, int64_t length, const F<E>& functor) {
  if (rows == 0) return;
  static const std::string entry = std::string(F<E>::name) + "_rows";
  launching([&] {
    const DeviceGuard guard(device.index);
    ::sycl::queue& queue = current_queue(device.index);
    const RowGroups groups = row_groups<F<E>>(device, rows, length);
    const auto items = static_cast<std::size_t>(threads_for(length, kSubGroup, kMostItems));
    const ::sycl::nd_range<1> range(static_cast<std::size_t>(groups.count) * items, items);
    ::sycl::ext::oneapi::experimental::nd_launch(queue, range, kernel(queue, E::dtype, entry), functor, rows, length,
                                                 groups.scratch);
  });
}

}  // namespace opwheel::xpu
