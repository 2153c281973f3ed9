// How the rows of an operator are shared out on a device: to how many groups of how many threads, and where their
// Scratch lies (opwheel/detail/row_functor.h). CUDA and SYCL have the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "opwheel/detail/allocate.h"
#include "opwheel/detail/row_functor.h"

namespace opwheel {

constexpr int64_t kScratchBytes = int64_t{64} << 20;  // of all groups' Scratch, where a row is too long for the chip
constexpr int64_t kMostRowGroups = int64_t{1} << 20;  // beyond, a group takes several rows

// Threads of a group: one for four elements, in multiples of those that run in step.
inline int64_t threads_for(int64_t length, int64_t in_step, int64_t most) {
  constexpr int64_t kElements = 4;
  const int64_t wanted = (length + kElements * in_step - 1) / (kElements * in_step) * in_step;
  return std::clamp(wanted, in_step, most);
}

struct RowGroups {
  int64_t count;
  Tensor memory;  // goes back to PyTorch's allocator at once, which gives it to later work on this stream alone
  void* scratch;  // in it; null where there is none, or it is on the chip
};

// For functor(row) or functor(row, Scratch<T>) on each of the rows, on the current stream of the current device.
template <class F>
RowGroups row_groups(Device device, int64_t rows, int64_t length) {
  using T = ScratchElement<F>;
  const int64_t count = std::min(rows, kMostRowGroups);
  if constexpr (!std::is_void_v<T>) {
    const int64_t bytes = length * static_cast<int64_t>(sizeof(T));
    if (bytes > kOnChipBytes) {
      const int64_t fewer = std::min(count, std::max<int64_t>(kScratchBytes / bytes, 1));
      Tensor memory = new_empty({fewer * bytes}, ScalarType::Byte, device);
      void* const scratch = data<void>(memory);
      return {fewer, std::move(memory), scratch};
    }
  }
  return {count, Tensor(), nullptr};
}

}  // namespace opwheel
