// Neighbouring elements of a row, in the type that they are computed in, with the arithmetic of one number.
#pragma once

#include <cstddef>
#include <type_traits>

#include "opwheel/functor.h"

namespace opwheel::cuda {

// +, -, * and / are those of each element, with another Lanes or with one number for all.
template <class C, int kCount>
struct Lanes {
  C values[kCount];

  OPWHEEL_HOST_DEVICE static Lanes all(C value) {
    Lanes lanes;
    OPWHEEL_UNROLL
    for (int i = 0; i < kCount; ++i) lanes.values[i] = value;
    return lanes;
  }
};

// function(a's element, b's element, ...) for each.
template <class Function, class C, int kCount, class... More>
OPWHEEL_HOST_DEVICE Lanes<C, kCount> map(const Function& function, const Lanes<C, kCount>& first, const More&... more) {
  Lanes<C, kCount> result;
  OPWHEEL_UNROLL
  for (int i = 0; i < kCount; ++i) result.values[i] = function(first.values[i], more.values[i]...);
  return result;
}

// combine(combine(start, first element), ...).
template <class Acc, class C, int kCount, class Combine>
OPWHEEL_HOST_DEVICE Acc fold(Acc start, const Lanes<C, kCount>& lanes, const Combine& combine) {
  OPWHEEL_UNROLL
  for (int i = 0; i < kCount; ++i) start = combine(start, static_cast<Acc>(lanes.values[i]));
  return start;
}

#define OPWHEEL_DETAIL_LANES_OPERATOR(op)                                                                  \
  template <class C, int kCount>                                                                           \
  OPWHEEL_HOST_DEVICE Lanes<C, kCount> operator op(const Lanes<C, kCount>& a, const Lanes<C, kCount>& b) { \
    return map([](C x, C y) { return x op y; }, a, b);                                                     \
  }                                                                                                        \
  template <class C, int kCount>                                                                           \
  OPWHEEL_HOST_DEVICE Lanes<C, kCount> operator op(const Lanes<C, kCount>& a, std::type_identity_t<C> b) { \
    return map([b](C x) { return x op b; }, a);                                                            \
  }                                                                                                        \
  template <class C, int kCount>                                                                           \
  OPWHEEL_HOST_DEVICE Lanes<C, kCount> operator op(std::type_identity_t<C> a, const Lanes<C, kCount>& b) { \
    return map([a](C y) { return a op y; }, b);                                                            \
  }
OPWHEEL_DETAIL_LANES_OPERATOR(+)
OPWHEEL_DETAIL_LANES_OPERATOR(-)
OPWHEEL_DETAIL_LANES_OPERATOR(*)
OPWHEEL_DETAIL_LANES_OPERATOR(/)
#undef OPWHEEL_DETAIL_LANES_OPERATOR

}  // namespace opwheel::cuda
