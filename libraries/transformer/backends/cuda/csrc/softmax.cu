// softmax over rows: exp(x - max(x)) / sum(exp(x - max(x))).
#include "exponentials.cuh"
#include "kernels.h"
#include "rows.cuh"

namespace transformer_ops::cuda {

template <class T>
struct SoftmaxRows {
  static constexpr int kHeld = 4;
  static constexpr bool kUsesClusters = true;
  static constexpr int kLeastBlocks = 2;

  Softmax a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    team.for_rows([&](int64_t i) {
      const auto x = team.load(static_cast<const T*>(a.x) + i * a.x_stride);
      T* const y = static_cast<T*>(a.y) + i * a.length;
      const auto join = [](const auto& first, const auto& second) { return joined<T>(first, second); };
      if constexpr (Team::kHolds) {  // exponentials are held: relative to the largest value of the thread
        C top = -static_cast<C>(INFINITY), sum = C(0);
        team.for_each([&](auto at) { top = fold(top, x[at], opwheel::Larger()); });
        const C shift = finite_top(top);
        const auto exps = team.keep([&](auto at) {
          const auto values = map([shift](C value) { return exp_for<T>(value, shift); }, x[at]);
          sum = fold(sum, values, opwheel::Add());
          return values;
        });
        const Exponentials<C> all = team.combined(Exponentials<C>{top, sum}, join);
        const C factor = (top == all.a ? C(1) : exp_for<T>(top, all.a)) / all.b;
        team.store(y, [&](auto at) { return exps[at] * factor; });
      } else {
        const auto row = [&](auto at) { return x[at]; };
        const Exponentials<C> all = team.combined(own_exponentials<T>(team, row), join);
        const C factor = C(1) / all.b;
        team.store(y, [&](auto at) { return map([&](C value) { return exp_for<T>(value, all.a) * factor; }, x[at]); });
      }
    });
  }
};

// dx = y * (grad - sum(grad * y) / sum(y)): sum(y) is 1, but for what y is rounded by, which would be all that is left
// where one element has nearly all of the weight.
template <class T>
struct SoftmaxRowsBackward {
  static constexpr int kHeld = 4;
  static constexpr bool kUsesClusters = true;
  static constexpr int kLeastBlocks = 2;

  SoftmaxBackward a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    team.for_rows([&](int64_t i) {
      const auto y = team.load(static_cast<const T*>(a.y) + i * a.y_stride);
      const auto grad = team.load(static_cast<const T*>(a.grad) + i * a.grad_stride);
      const auto [total, products] = team.two_sums([&](auto at) {
        const auto value = y[at];
        return opwheel::cuda::Two<typename Team::Values>{value, grad[at] * value};
      });
      const C mean = products / total;
      team.store(static_cast<T*>(a.dx) + i * a.length, [&](auto at) { return y[at] * (grad[at] - mean); });
    });
  }
};

void run(Device device, ScalarType dtype, const Softmax& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.y}, {a.x_stride});
    run_rows<T>(device, rows, a.length, is_aligned, SoftmaxRows<T>{a});
  });
}

void run(Device device, ScalarType dtype, const SoftmaxBackward& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.grad, a.y, a.dx}, {a.grad_stride, a.y_stride});
    run_rows<T>(device, rows, a.length, is_aligned, SoftmaxRowsBackward<T>{a});
  });
}

}  // namespace transformer_ops::cuda
