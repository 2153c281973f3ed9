// The logarithm of softmax over rows: x - max(x) - log(sum(exp(x - max(x)))).
#include "exponentials.cuh"
#include "kernels.h"
#include "rows.cuh"

namespace transformer_ops::cuda {

template <class T>
struct LogSoftmaxRows {
  static constexpr int kHeld = 4;
  static constexpr bool kUsesClusters = true;

  LogSoftmax a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    team.for_rows([&](int64_t i) {
      const auto x = team.load(static_cast<const T*>(a.x) + i * a.x_stride);
      const C top = team.maximum(-static_cast<C>(INFINITY), [&](auto at) { return x[at]; });
      // The largest are counted and the others summed: next to 1 a small sum would be lost, and it is the logarithm of
      // an element with nearly all of the weight.
      const auto [count, others] = team.two_sums([&](auto at) {
        const auto weights = map([top](C value) { return std::exp(value - top); }, x[at]);
        return opwheel::cuda::Two<typename Team::Values>{
            map([](C weight) { return weight < C(1) ? C(0) : weight; }, weights),
            map([](C weight) { return weight < C(1) ? weight : C(0); }, weights)};
      });
      const C log_total = std::log1p(others + (count - C(1)));
      team.store(static_cast<T*>(a.y) + i * a.length,
                 [&](auto at) { return map([&](C value) { return (value - top) - log_total; }, x[at]); });
    });
  }
};

// dx = grad - exp(y) * sum(grad).
template <class T>
struct LogSoftmaxRowsBackward {
  static constexpr int kHeld = 4;
  static constexpr bool kUsesClusters = true;

  LogSoftmaxBackward a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    team.for_rows([&](int64_t i) {
      const auto y = team.load(static_cast<const T*>(a.y) + i * a.y_stride);
      const auto grad = team.load(static_cast<const T*>(a.grad) + i * a.grad_stride);
      const C total = team.sum([&](auto at) { return grad[at]; });
      team.store(static_cast<T*>(a.dx) + i * a.length,
                 [&](auto at) { return grad[at] - map([](C value) { return std::exp(value); }, y[at]) * total; });
    });
  }
};

void run(Device device, ScalarType dtype, const LogSoftmax& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.y}, {a.x_stride});
    run_rows<T>(device, rows, a.length, is_aligned, LogSoftmaxRows<T>{a});
  });
}

void run(Device device, ScalarType dtype, const LogSoftmaxBackward& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.grad, a.y, a.dx}, {a.grad_stride, a.y_stride});
    run_rows<T>(device, rows, a.length, is_aligned, LogSoftmaxRowsBackward<T>{a});
  });
}

}  // namespace transformer_ops::cuda
