// rms_norm and layer_norm, forward and backward.
#include "columns.cuh"
#include "kernels.h"
#include "rows.cuh"

namespace transformer_ops::cuda {

constexpr int kHeldWithSums = 2;

// What a row is multiplied by, whatever dtype it has: 1 / sqrt(mean + eps), of squares.
template <class C>
__device__ C reciprocal_root(C mean, double eps) {
  return C(1) / std::sqrt(mean + static_cast<C>(eps));
}

template <class T, bool has_residual>
struct RmsNormRows {
  static constexpr int kHeld = 2;
  static constexpr bool kUsesClusters = true;

  RmsNorm a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    const auto weight = team.load(static_cast<const T*>(a.weight));
    team.for_rows([&](int64_t i) {
      const auto x = team.load(static_cast<const T*>(a.x) + i * a.x_stride);
      if constexpr (has_residual) {
        const auto residual = team.load(static_cast<const T*>(a.residual) + i * a.residual_stride);
        T* const sum = static_cast<T*>(a.sum) + i * a.sum_stride;
        normalise(team, i, team.store(sum, [&](auto at) { return x[at] + residual[at]; }), weight);
      } else {
        normalise(team, i, x, weight);
      }
    });
  }

  template <class Team, class Row, class Weight>
  __device__ void normalise(const Team& team, int64_t i, const Row& x, const Weight& weight) const {
    using C = ComputeType<T>;
    const bool rounds_first = a.casting == Casting::llama && a.weight != nullptr;
    const C offset = a.weight == nullptr ? C(0) : static_cast<C>(a.offset);
    const C squares = team.sum([&](auto at) { return x[at] * x[at]; });
    const C r = reciprocal_root(squares / static_cast<C>(team.length()), a.eps);
    const auto row = team.again(x), weights = team.again(weight);
    team.store(static_cast<T*>(a.y) + i * a.y_stride, [&](auto at) {
      auto value = row[at] * r, factor = weights[at] + offset;
      if (rounds_first) value = rounded<T>(value), factor = rounded<T>(factor);
      return value * factor;
    });
  }
};

// With m = grad * (offset + weight) and r the reciprocal of the root mean square:
// dx = r * (m - x * r^2 * mean(m * x)), dweight = sum over rows of grad * x * r
template <class T>
struct RmsNormRowsBackward {
  static constexpr int kHeld = kHeldWithSums;
  static constexpr bool kUsesClusters = true;

  RmsNormBackward a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    const bool rounds_first = a.casting == Casting::llama;
    const C offset = a.weight == nullptr ? C(0) : static_cast<C>(a.offset), n = static_cast<C>(team.length());
    const auto weight = team.load(static_cast<const T*>(a.weight));
    C* const partial = a.partial == nullptr ? nullptr : static_cast<C*>(a.partial) + team.index() * a.length;
    if (partial == nullptr) {
      team.for_rows([&](int64_t i) { row(team, i, weight, offset, n, [](auto, const auto&, const auto&) {}); });
      return;
    }
    auto sums = team.sums(partial);
    team.for_rows([&](int64_t i) {
      row(team, i, weight, offset, n, [&](auto at, const auto& gradient, const auto& normalised) {
        sums.add(at, gradient * (rounds_first ? rounded<T>(normalised) : normalised));
      });
    });
    team.finish(partial, sums);
  }

  template <class Team, class Weight, class C, class Add>
  __device__ void row(const Team& team, int64_t i, const Weight& weight, C offset, C n, const Add& add) const {
    const auto x = team.load(static_cast<const T*>(a.x) + i * a.x_stride);
    const auto grad = team.load(static_cast<const T*>(a.grad) + i * a.grad_stride);
    const T* const more = static_cast<const T*>(a.grad_sum) + i * a.grad_sum_stride;
    const auto first_weights = team.again(weight);
    const auto [squares, products] = team.two_sums([&](auto at) {
      const auto value = x[at];
      return opwheel::cuda::Two<typename Team::Values>{value * value, grad[at] * (first_weights[at] + offset) * value};
    });
    const C r = reciprocal_root(squares / n, a.eps), inner = products * r * r / n;
    const auto row = team.again(x), gradients = team.again(grad), weights = team.again(weight);
    team.store(static_cast<T*>(a.dx) + i * a.length, [&](auto at) {
      const auto value = row[at], gradient = gradients[at];
      add(at, gradient, value * r);
      auto d = (gradient * (weights[at] + offset) - value * inner) * r;
      if (a.grad_sum != nullptr) d = d + team.read(more, at);
      return d;
    });
  }
};

// What a row is normalised by: its mean; r, which is 1 / sqrt(variance + eps), and nan where the squares overflow; and
// what the mean is rounded by, times -r. Made from the distances from the first element: the sum of the elements would
// be rounded to the last digit of an offset that they have in common.
template <class C>
struct Moments {
  C mean, r, shift;

  template <class Team, class Row>
  __device__ Moments(const Team& team, const Row& x, C first, double eps) {
    const C n = static_cast<C>(team.length());
    mean = first + team.sum([&](auto at) { return x[at] - first; }) / n;
    const auto row = team.again(x);
    const auto [sum, squares] = team.two_sums([&](auto at) {
      const auto distance = row[at] - mean;
      return opwheel::cuda::Two<typename Team::Values>{distance, distance * distance};
    });
    const C rest = sum / n, variance = squares / n - rest * rest;
    r = std::isinf(variance) ? static_cast<C>(NAN) : reciprocal_root(variance < 0 ? C(0) : variance, eps);
    shift = -rest * r;
  }
  template <class Values>
  __device__ Values normalised(const Values& values) const {
    return (values - mean) * r + shift;
  }
};

template <class T>
struct LayerNormRows {
  static constexpr int kHeld = 4;
  static constexpr bool kUsesClusters = true;

  LayerNorm a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    const auto weight = team.load(static_cast<const T*>(a.weight));
    const T* const bias = static_cast<const T*>(a.bias);
    team.for_rows([&](int64_t i) {
      const T* const row = static_cast<const T*>(a.x) + i * a.x_stride;
      const auto x = team.load(row);
      const Moments<C> moments(team, x, static_cast<C>(row[0]), a.eps);
      const auto values = team.again(x), weights = team.again(weight);
      team.store(static_cast<T*>(a.y) + i * a.length, [&](auto at) {
        auto value = moments.normalised(values[at]) * weights[at];
        if (bias != nullptr) value = value + team.read(bias, at);
        return value;
      });
    });
  }
};

// With h = (x - mean) * r and m = grad * weight: dx = r * (m - mean(m) - h * mean(m * h)), dweight = sum over rows of
// grad * h, dbias = sum over rows of grad
template <class T>
struct LayerNormRowsBackward {
  static constexpr int kHeld = kHeldWithSums;
  static constexpr bool kUsesClusters = true;

  LayerNormBackward a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    const C n = static_cast<C>(team.length());
    const auto weight = team.load(static_cast<const T*>(a.weight));
    C* const partial = static_cast<C*>(a.partial) + team.index() * a.length;
    C* const partial_bias = static_cast<C*>(a.partial_bias) + team.index() * a.length;
    auto sums = team.sums(partial), bias_sums = team.sums(partial_bias);
    team.for_rows([&](int64_t i) {
      const T* const row = static_cast<const T*>(a.x) + i * a.x_stride;
      const auto x = team.load(row);
      const auto grad = team.load(static_cast<const T*>(a.grad) + i * a.grad_stride);
      const Moments<C> moments(team, x, static_cast<C>(row[0]), a.eps);
      const auto values = team.again(x), weights = team.again(weight);
      const auto [gradients, products] = team.two_sums([&](auto at) {
        const auto weighted = grad[at] * weights[at];
        return opwheel::cuda::Two<typename Team::Values>{weighted, weighted * moments.normalised(values[at])};
      });
      const C mean = gradients / n, inner = products / n;
      const auto last_values = team.again(values), last_grad = team.again(grad), last_weights = team.again(weight);
      team.store(static_cast<T*>(a.dx) + i * a.length, [&](auto at) {
        const auto normalised = moments.normalised(last_values[at]), gradient = last_grad[at];
        sums.add(at, gradient * normalised);
        bias_sums.add(at, gradient);
        return (gradient * last_weights[at] - mean - normalised * inner) * moments.r;
      });
    });
    team.finish(partial, sums);
    team.finish(partial_bias, bias_sums);
  }
};

// The same for the gradients of both norms.
template <class T>
auto plan_of_sums(Device device, int64_t rows, int64_t length, bool is_aligned) {
  return plan_teams<T, RmsNormRowsBackward<T>>(device, rows, length, is_aligned, kFewThreads);
}

int64_t part_count(Device device, ScalarType dtype, int64_t rows, int64_t length) {
  int64_t count = 0;
  dispatch(dtype, [&]<class T>() { count = plan_of_sums<T>(device, rows, length, true).teams; });
  return count;
}

void run(Device device, ScalarType dtype, const RmsNorm& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.weight, a.y, a.residual, a.sum},
                                           {a.x_stride, a.y_stride, a.residual_stride, a.sum_stride});
    if (a.residual == nullptr) {
      run_rows<T>(device, rows, a.length, is_aligned, RmsNormRows<T, false>{a}, kAsManyAsFit);
    } else {
      run_rows<T>(device, rows, a.length, is_aligned, RmsNormRows<T, true>{a}, kAsManyAsFit);
    }
  });
}

void run(Device device, ScalarType dtype, const RmsNormBackward& a, int64_t parts, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.grad, a.x, a.weight, a.grad_sum, a.dx, a.partial},
                                           {a.grad_stride, a.x_stride, a.grad_sum_stride});
    auto plan = plan_of_sums<T>(device, a.rows, a.length, is_aligned);
    if (a.partial != nullptr) plan.set_teams(parts);
    run_teams(plan, RmsNormRowsBackward<T>{a});
  });
}

void run(Device device, ScalarType dtype, const LayerNorm& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.weight, a.bias, a.y}, {a.x_stride});
    run_rows<T>(device, rows, a.length, is_aligned, LayerNormRows<T>{a}, kAsManyAsFit);
  });
}

void run(Device device, ScalarType dtype, const LayerNormBackward& a, int64_t parts, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned =
        are_aligned<T>(a.length, {a.grad, a.x, a.weight, a.dx, a.partial, a.partial_bias}, {a.grad_stride, a.x_stride});
    auto plan = plan_of_sums<T>(device, a.rows, a.length, is_aligned);
    plan.set_teams(parts);
    run_teams(plan, LayerNormRowsBackward<T>{a});
  });
}

void run(Device device, ScalarType dtype, const SumParts& a, int64_t, int64_t) {
  dispatch(dtype, [&]<class T>() {
    using C = ComputeType<T>;
    sum_columns(device, static_cast<const C*>(a.partial), static_cast<T*>(a.sums), static_cast<T*>(a.more_sums),
                a.parts, a.length, false);
  });
}

}  // namespace transformer_ops::cuda
