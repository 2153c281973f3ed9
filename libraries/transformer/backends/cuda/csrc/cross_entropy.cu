// Cross entropy over rows of logits, forward and backward.
#include <cassert>

#include "exponentials.cuh"
#include "kernels.h"
#include "rows.cuh"

namespace transformer_ops::cuda {

// softcap * tanh(x / softcap), or x.
template <class C>
__device__ C capped(C x, C softcap) {
  return softcap > 0 ? softcap * std::tanh(x / softcap) : x;
}
// Its derivative, 1 - tanh(x / softcap)^2, as 4 s (1 - s) with s = sigmoid(-2 |x / softcap|): the difference would
// leave nothing of a logit far beyond the cap.
template <class C>
__device__ C cap_slope(C x, C softcap) {
  const C s = sigmoid(-2 * std::fabs(x / softcap));
  return 4 * s * (1 - s);
}

// With z = log(sum(exp(x))) and t the target, for one row:
//   loss = w[t] (1 - smoothing) (z - x[t]) + smoothing / n sum(w (z - x)) + lse_square_scale z^2
// where w, the weights of classes, is 1 for all if there is none. All of it is multiplied by the weight of the token.
// Logits may be large and close together: z is the largest of them and a small number, whose sum, lse, is rounded.
// Differences from z are taken from one and then the other, and lse_rest is what lse has lost. The target's own exp is
// left out of the sum of the others, and added by log1p: it would hide them where the target is nearly certain, and
// with them the loss.
template <class T>
struct CrossEntropyRows {
  static constexpr int kHeld = 4;
  static constexpr bool kUsesClusters = true;

  CrossEntropy a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    const C softcap = static_cast<C>(a.softcap), smoothing = static_cast<C>(a.label_smoothing);
    const C n = static_cast<C>(a.length);
    const C *const w = static_cast<const C*>(a.weight), *const u = static_cast<const C*>(a.token_weight);
    const auto cap = [softcap](C value) { return capped(value, softcap); };
    team.for_rows([&](int64_t i) {
      C loss = 0, lse = 0, lse_rest = 0;
      const int64_t target = a.target[i];
      if (target != a.ignore_index) {
        assert(target >= 0 && target < a.length && "argument 'target' has an element that is no class");
        const T* const data = static_cast<const T*>(a.x) + i * a.x_stride;
        const auto x = team.load(data);
        const auto logits = [&](auto at) { return softcap > 0 ? map(cap, x[at]) : x[at]; };
        const Exponentials<C> others =
            team.combined(own_exponentials<T>(team, logits, target),
                          [](const auto& first, const auto& second) { return joined<T>(first, second); });
        const C top = others.a, chosen = cap(static_cast<C>(data[target]));
        const C log_total = std::log1p(others.b + std::expm1(chosen - top));
        lse = top + log_total;
        lse_rest = (top - lse) + log_total;
        const C factor = w == nullptr ? C(1) : w[target];
        loss = factor * (C(1) - smoothing) * ((top - chosen) + log_total);
        if (smoothing > 0 && w == nullptr) {
          loss += smoothing * (team.sum([&](auto at) { return top - logits(at); }) / n + log_total);
        } else if (smoothing > 0) {
          const auto weighted = [&](auto at) { return team.read(w, at) * ((top - logits(at)) + log_total); };
          loss += smoothing / n * team.sum(weighted);
        }
        loss += static_cast<C>(a.lse_square_scale) * lse * lse;
        if (u != nullptr) loss *= u[i];
      }
      if (!team.is_first()) return;
      static_cast<C*>(a.loss)[i] = loss;
      static_cast<C*>(a.lse)[i] = lse;
      static_cast<C*>(a.lse_rest)[i] = lse_rest;
    });
  }
};

// With p = exp(x - z): dx = g (w[t] (1 - smoothing) (p - [k = t]) + smoothing / n (p sum(w) - w)) +
// of_z 2 lse_square_scale z p, times the derivative of the cap; g and of_z are grad times the weight of the token, each
// divided by its divisor. The target's own has p - 1 as expm1(log(p)): a difference would leave nothing where the
// target is nearly certain.
template <class T>
struct CrossEntropyRowsBackward {
  static constexpr int kHeld = 2;
  static constexpr int kLeastBlocks = 2;

  CrossEntropyBackward a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    const C softcap = static_cast<C>(a.softcap), smoothing = static_cast<C>(a.label_smoothing);
    const C n = static_cast<C>(a.length);
    const C *const w = static_cast<const C*>(a.weight), *const u = static_cast<const C*>(a.token_weight);
    const C *const grad = static_cast<const C*>(a.grad), *const divisors = static_cast<const C*>(a.divisors);
    const auto cap = [softcap](C value) { return capped(value, softcap); };
    C weights = n;
    if (smoothing > 0 && w != nullptr && team.has_rows()) {
      weights = team.sum([&](auto at) { return team.read(w, at); });
    }
    team.for_rows([&](int64_t i) {
      T* const dx = static_cast<T*>(a.dx) + i * a.length;
      const int64_t target = a.target[i];
      if (target == a.ignore_index) {
        team.store(dx, [](auto) { return Team::Values::all(C(0)); });
        return;
      }
      assert(target >= 0 && target < a.length && "argument 'target' has an element that is no class");
      const auto x = team.load(static_cast<const T*>(a.x) + i * a.x_stride);
      const C z = static_cast<const C*>(a.lse)[i], z_rest = static_cast<const C*>(a.lse_rest)[i];
      C g = (grad == nullptr ? C(1) : grad[a.grad_per_row ? i : 0]) * (u == nullptr ? C(1) : u[i]), of_z = g;
      if (divisors != nullptr) {
        g /= divisors[0];
        of_z /= divisors[1];
      }
      const C chosen = (w == nullptr ? C(1) : w[target]) * (C(1) - smoothing);
      const C of_others = g * (smoothing / n * weights) + of_z * C(2) * static_cast<C>(a.lse_square_scale) * z;
      const C of_p = g * chosen + of_others, shift = g * (smoothing / n);
      team.store(dx, [&](auto at) {
        const auto given = x[at], logits = softcap > 0 ? map(cap, given) : given;
        const auto shifts = w == nullptr || shift == 0 ? Team::Values::all(shift) : team.read(w, at) * shift;
        auto result = map([&](C logit) { return of_p * exp_for<T>(logit - z, z_rest); }, logits) - shifts;
        const int64_t lane = target - static_cast<int64_t>(at.begin);
        if (lane >= 0 && lane < Team::kWidth) {
          C log_p = C(0), of_class = C(0);
          OPWHEEL_UNROLL
          for (int k = 0; k < Team::kWidth; ++k) {
            if (k == lane) log_p = (logits.values[k] - z) - z_rest, of_class = shifts.values[k];
          }
          const C own = g * chosen * std::expm1(log_p) + of_others * std::exp(log_p) - of_class;
          OPWHEEL_UNROLL
          for (int k = 0; k < Team::kWidth; ++k) {
            if (k == lane) result.values[k] = own;
          }
        }
        return softcap > 0 ? result * map([softcap](C value) { return cap_slope(value, softcap); }, given) : result;
      });
    });
  }
};

void run(Device device, ScalarType dtype, const CrossEntropy& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.weight}, {a.x_stride});
    run_rows<T>(device, rows, a.length, is_aligned, CrossEntropyRows<T>{a});
  });
}

void run(Device device, ScalarType dtype, const CrossEntropyBackward& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.weight, a.dx}, {a.x_stride});
    run_rows<T>(device, rows, a.length, is_aligned, CrossEntropyRowsBackward<T>{a});
  });
}

}  // namespace transformer_ops::cuda
