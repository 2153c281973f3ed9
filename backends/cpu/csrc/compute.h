// One row of an element-wise operator: inner loops for operands of the result's own dtype, and a converting loop for
// mixed dtypes.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "muladd/arithmetic.h"
#include "muladd/elementwise.h"

namespace muladd::cpu {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;

template <class F, class C, class... Args>
constexpr std::size_t count_arguments(Pair<C> (F::*)(Args...) const) {
  return sizeof...(Args);
}
template <class F, class C, class... Args>
constexpr std::size_t count_arguments(C (F::*)(Args...) const) {
  return sizeof...(Args);
}
template <class T, class C>
void store(char* const* outputs, const std::array<int64_t, 2>& offsets, C value) {
  *reinterpret_cast<T*>(outputs[0] + offsets[0]) = static_cast<T>(value);
}
template <class T, class C>
void store(char* const* outputs, const std::array<int64_t, 2>& offsets, Pair<C> value) {
  *reinterpret_cast<T*>(outputs[0] + offsets[0]) = static_cast<T>(value.first);
  *reinterpret_cast<T*>(outputs[1] + offsets[1]) = static_cast<T>(value.second);
}

// How the operands of a plan step along a row, with the types that the loops need.
template <class T, class C, class F>
class RowKernel {
  static constexpr std::size_t kInputs = count_arguments(&F::operator());
  using Indices = std::make_index_sequence<kInputs>;

 public:
  RowKernel(const ElementwisePlan& plan, F functor) : plan_(plan), functor_(functor) {
    bool one_dtype = true;
    for (int i = 0; i < plan.operand_count; ++i) {
      steps_[i] = plan.ndim == 0 ? 0 : plan.operands[i].strides[0];
      one_dtype &= plan.operands[i].info.dtype == plan.dtype;
    }
    row_ = one_dtype ? choose() : &RowKernel::mixed_dtypes;
  }

  void operator()(char* const* data, int64_t n) const { (this->*row_)(data, n); }

 private:
  using Row = void (RowKernel::*)(char* const*, int64_t) const;
  static constexpr int64_t kStep = sizeof(T);
  static constexpr int64_t kBlock = 256;  // elements converted at a time: stays in the first-level cache

  const ElementwisePlan& plan_;
  F functor_;
  int64_t steps_[kMaxOperands] = {};
  Row row_;

  Row choose() const {
    bool contiguous = true;
    for (int i = 0; i < plan_.output_count; ++i) contiguous &= steps_[i] == kStep;
    unsigned repeated = 0;  // bit i: input i is one value for the whole row
    for (std::size_t i = 0; i < kInputs; ++i) {
      const int64_t step = steps_[plan_.output_count + i];
      contiguous &= step == kStep || step == 0;
      repeated |= (step == 0 ? 1u : 0u) << i;
    }
    if (!contiguous) return &RowKernel::strided;
    return choose_repeated(repeated, std::make_index_sequence<1u << kInputs>{});
  }

  template <std::size_t... Masks>
  static Row choose_repeated(unsigned mask, std::index_sequence<Masks...>) {
    static constexpr Row rows[] = {&RowKernel::template contiguous<Masks>...};
    return rows[mask];
  }

  template <std::size_t repeated>
  void contiguous(char* const* data, int64_t n) const {
    contiguous_loop<repeated>(data, n, Indices{});
  }

  template <std::size_t repeated, std::size_t... I>
  void contiguous_loop(char* const* data, int64_t n, std::index_sequence<I...>) const {
    const F functor = functor_;
    const T* const inputs[] = {reinterpret_cast<const T*>(data[plan_.output_count + I])...};
    char* const outputs[] = {data[0], data[1]};
    // An output may be the very elements of an input (in place), never a shifted view of them.
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      store<T>(outputs, {i * kStep, i * kStep}, functor(static_cast<C>(inputs[I][repeated >> I & 1 ? 0 : i])...));
    }
  }

  void strided(char* const* data, int64_t n) const { strided_loop(data, n, Indices{}); }

  template <std::size_t... I>
  void strided_loop(char* const* data, int64_t n, std::index_sequence<I...>) const {
    const F functor = functor_;
    const char* const inputs[] = {data[plan_.output_count + I]...};
    const int64_t steps[] = {steps_[plan_.output_count + I]...};
    char* const outputs[] = {data[0], data[1]};
    for (int64_t i = 0; i < n; ++i) {
      store<T>(outputs, {i * steps_[0], i * steps_[1]},
               functor(static_cast<C>(*reinterpret_cast<const T*>(inputs[I] + i * steps[I]))...));
    }
  }

  void mixed_dtypes(char* const* data, int64_t n) const { mixed_loop(data, n, Indices{}); }

  template <std::size_t... I>
  void mixed_loop(char* const* data, int64_t n, std::index_sequence<I...>) const {
    const F functor = functor_;
    C block[kInputs][kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t length = std::min(kBlock, n - begin);
      (load(block[I], plan_.input(I).info.dtype, data[plan_.output_count + I], begin, steps_[plan_.output_count + I],
            length),
       ...);
      for (int64_t i = 0; i < length; ++i) {
        store<T>(data, {(begin + i) * steps_[0], (begin + i) * steps_[1]}, functor(block[I][i]...));
      }
    }
  }

  static void load(C* block, DType dtype, const char* data, int64_t begin, int64_t step, int64_t length) {
    switch (dtype) {
      case DType::float16:
        return load_as<Half>(block, data, begin, step, length);
      case DType::bfloat16:
        return load_as<BFloat16>(block, data, begin, step, length);
      case DType::float32:
        return load_as<float>(block, data, begin, step, length);
      default:
        return load_as<double>(block, data, begin, step, length);
    }
  }

  template <class From>
  static void load_as(C* block, const char* data, int64_t begin, int64_t step, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      block[i] = static_cast<C>(*reinterpret_cast<const From*>(data + (begin + i) * step));
    }
  }
};

}  // namespace muladd::cpu
