// What a loop over rows on a device calls: a functor that takes the row's number and, if it wants some, memory for the
// row's intermediate values. CUDA and SYCL have the same (opwheel/cuda/rows.cuh, opwheel/xpu/device/rows.h), so nothing
// here depends on either, or on PyTorch.
#pragma once

#include <cstdint>

#include "opwheel/functor.h"

namespace opwheel {

// Memory for one row's intermediate values, as many as the row has elements, shared by the threads that work on it. A
// functor that wants it takes it as its second argument. On the chip where the row is short enough. Not initialised; a
// thread that reads what another one wrote needs a barrier() in between.
template <class T>
struct Scratch {
  T* memory;
  OPWHEEL_HOST_DEVICE T& operator[](int64_t k) const { return memory[k]; }
};

constexpr int64_t kOnChipBytes = 16 << 10;  // of Scratch

namespace detail {

template <class Call>
struct ScratchOf;
template <class F>
struct ScratchOf<void (F::*)(int64_t) const> {
  using type = void;
};
template <class F, class T>
struct ScratchOf<void (F::*)(int64_t, Scratch<T>) const> {
  using type = T;
};

}  // namespace detail

// What a functor's Scratch holds; void where it takes none.
template <class F>
using ScratchElement = typename detail::ScratchOf<decltype(&F::operator())>::type;

}  // namespace opwheel
