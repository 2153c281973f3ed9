// The largest value of a row and the sum of exponentials, in one pass: what softmax and cross entropy begin with.
#pragma once

#include "rows.cuh"

namespace transformer_ops::cuda {

// `a`: the largest of some values; `b`: the sum of exp(value - a). nan is the largest.
template <class C>
using Exponentials = opwheel::cuda::Two<C>;

// What exp() is relative to: where all values are -inf, so that they are 0 and not nan.
template <class C>
__device__ C finite_top(C top) {
  return top == -static_cast<C>(INFINITY) ? C(0) : top;
}

template <class T, class C>
__device__ Exponentials<C> joined(const Exponentials<C>& x, const Exponentials<C>& y) {
  const C top = opwheel::Larger()(x.a, y.a), at = finite_top(top);
  return {top, x.b * (x.a == top ? C(1) : exp_for<T>(x.a, at)) + y.b * (y.a == top ? C(1) : exp_for<T>(y.a, at))};
}

// Of a thread's own values, row(at) each; the sum leaves one element out, or none where that is -1.
template <class T, class Team, class Row>
__device__ auto own_exponentials(const Team& team, const Row& row, int64_t left_out = -1) {
  using C = typename Team::C;
  Exponentials<C> own{-static_cast<C>(INFINITY), C(0)};
  team.for_each([&](auto at) {
    const auto values = row(at);
    const C top = fold(own.a, values, opwheel::Larger()), shift = finite_top(top);
    const int64_t lane = left_out - static_cast<int64_t>(at.begin);
    C sum = own.a == top ? own.b : own.b * exp_for<T>(own.a, shift);
    if (lane < 0 || lane >= Team::kWidth) {
      OPWHEEL_UNROLL
      for (int k = 0; k < Team::kWidth; ++k) sum += exp_for<T>(values.values[k], shift);
    } else {
      OPWHEEL_UNROLL
      for (int k = 0; k < Team::kWidth; ++k) sum += k == lane ? C(0) : exp_for<T>(values.values[k], shift);
    }
    own = {top, sum};
  });
  return own;
}

}  // namespace transformer_ops::cuda
