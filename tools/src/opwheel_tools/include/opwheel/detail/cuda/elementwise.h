// The kernels of element-wise operators. Each is a struct of parameters whose operator() is what one thread does;
// enqueue.cuh makes CUDA kernels of them, the tests run them on the CPU, thread by thread. A thread reads everything
// before it writes, so that an output may be the very elements of an input (in place).
#pragma once

#include <cstdint>

#include "opwheel/detail/cuda/vector.h"
#include "opwheel/detail/dtype.h"
#include "opwheel/detail/offset_calculator.h"

namespace opwheel::cuda {

constexpr uint32_t kThreads = 256;  // in a block

// A block works on `tile` consecutive items, a thread on every kThreads-th of them: neighbours load neighbours.
template <int kUnroll>
constexpr uint32_t kTile = kThreads * kUnroll;

// Operands that lie in memory one element after the other, all with the same distance to a 16-byte boundary. The few
// elements before the first and after the last boundary are done one by one.
template <class T, class F>
struct Contiguous {
  using Traits = FunctorTraits<F>;
  using C = ComputeType<T>;
  static constexpr int kUnroll = 2;
  static constexpr int64_t kLanes = Vector<T>::kLanes;

  F functor;
  const T* inputs[Traits::kInputs];
  T* outputs[Traits::kOutputs];
  int64_t count;
  int64_t head;  // elements before the first boundary

  OPWHEEL_HOST_DEVICE int64_t vectors() const { return (count - head) / kLanes; }

  OPWHEEL_HOST_DEVICE void operator()(uint32_t block, uint32_t thread) const {
    const int64_t first = static_cast<int64_t>(block) * kTile<kUnroll> + thread;
    const int64_t end = vectors();
    Vector<T> in[kUnroll][Traits::kInputs];
    Vector<T> out[kUnroll][Traits::kOutputs];
    OPWHEEL_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t number = first + u * kThreads;
      if (number >= end) continue;
      OPWHEEL_UNROLL
      for (int i = 0; i < Traits::kInputs; ++i) in[u][i] = *vector(inputs[i], number);
    }
    OPWHEEL_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t number = first + u * kThreads;
      if (number >= end) continue;
      apply(functor, in[u], out[u]);
      OPWHEEL_UNROLL
      for (int i = 0; i < Traits::kOutputs; ++i) *vector(outputs[i], number) = out[u][i];
    }
    if (block != 0) return;
    const int64_t tail = head + end * kLanes;
    if (thread < head) element(thread);
    if (thread < count - tail) element(tail + thread);
  }

 private:
  template <class Element>
  OPWHEEL_HOST_DEVICE auto* vector(Element* data, int64_t number) const {
    using V = std::conditional_t<std::is_const_v<Element>, const Vector<T>, Vector<T>>;
    return reinterpret_cast<V*>(data + head) + number;
  }

  OPWHEEL_HOST_DEVICE void element(int64_t number) const {
    C in[Traits::kInputs], out[Traits::kOutputs];
    OPWHEEL_UNROLL
    for (int i = 0; i < Traits::kInputs; ++i) in[i] = static_cast<C>(inputs[i][number]);
    apply(functor, in, out);
    OPWHEEL_UNROLL
    for (int i = 0; i < Traits::kOutputs; ++i) outputs[i][number] = static_cast<T>(out[i]);
  }
};

// Any strides. `Item` is what a thread moves at a time: an element, or a vector of them along the innermost dimension.
template <class Item, class F>
struct Strided {
  using Traits = FunctorTraits<F>;
  static constexpr int kUnroll = Item::kUnroll;

  F functor;
  uint32_t count;  // of items
  OffsetCalculator<Traits::kOperands> place;
  char* data[Traits::kOperands];  // outputs first
  typename Item::Form forms[Traits::kInputs];

  OPWHEEL_HOST_DEVICE void operator()(uint32_t block, uint32_t thread) const {
    const uint32_t first = block * kTile<kUnroll> + thread;
    uint32_t offsets[kUnroll][Traits::kOperands];
    bool inside[kUnroll];
    OPWHEEL_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const uint32_t number = first + u * kThreads;
      inside[u] = number < count;
      // Threads past the end compute the place of the first item and touch nothing.
      place.get(inside[u] ? number : 0, offsets[u]);
    }
    typename Item::Loaded in[kUnroll][Traits::kInputs];
    OPWHEEL_UNROLL
    for (int i = 0; i < Traits::kInputs; ++i) {
      const char* places[kUnroll];
      OPWHEEL_UNROLL
      for (int u = 0; u < kUnroll; ++u) places[u] = data[Traits::kOutputs + i] + offsets[u][Traits::kOutputs + i];
      Item::load(forms[i], places, inside, in, i);
    }
    OPWHEEL_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      if (!inside[u]) continue;
      typename Item::Loaded out[Traits::kOutputs];
      apply(functor, in[u], out);
      OPWHEEL_UNROLL
      for (int i = 0; i < Traits::kOutputs; ++i) Item::store(data[i] + offsets[u][i], out[i]);
    }
  }
};

// One element, converted from whatever dtype the operand has.
template <class T>
struct Element {
  using Loaded = ComputeType<T>;
  using Form = DType;
  static constexpr int kUnroll = 4;

  template <int kInputs>
  static OPWHEEL_HOST_DEVICE void load(DType dtype, const char* const (&places)[kUnroll], const bool (&inside)[kUnroll],
                                       Loaded (&in)[kUnroll][kInputs], int i) {
    with_element_type<StoredTypes>(dtype, [&](auto type) {
      using From = typename decltype(type)::type;
      OPWHEEL_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        if (inside[u]) in[u][i] = static_cast<Loaded>(*reinterpret_cast<const From*>(places[u]));
      }
    });
  }

  static OPWHEEL_HOST_DEVICE void store(char* place, Loaded value) {
    *reinterpret_cast<T*>(place) = static_cast<T>(value);
  }
};

// Vector<T>::kLanes elements: 16 bytes, or one element for all of them where the operand is repeated along a row.
enum class Row : uint8_t { contiguous, repeated };

template <class T>
struct RowVector {
  using Loaded = Vector<T>;
  using Form = Row;
  static constexpr int kUnroll = 2;

  template <int kInputs>
  static OPWHEEL_HOST_DEVICE void load(Row row, const char* const (&places)[kUnroll], const bool (&inside)[kUnroll],
                                       Loaded (&in)[kUnroll][kInputs], int i) {
    if (row == Row::contiguous) {
      OPWHEEL_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        if (inside[u]) in[u][i] = *reinterpret_cast<const Vector<T>*>(places[u]);
      }
    } else {
      OPWHEEL_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        if (!inside[u]) continue;
        const T value = *reinterpret_cast<const T*>(places[u]);
        OPWHEEL_UNROLL
        for (int lane = 0; lane < Vector<T>::kLanes; ++lane) in[u][i].lanes[lane] = value;
      }
    }
  }

  static OPWHEEL_HOST_DEVICE void store(char* place, const Vector<T>& value) {
    *reinterpret_cast<Vector<T>*>(place) = value;
  }
};

}  // namespace opwheel::cuda
