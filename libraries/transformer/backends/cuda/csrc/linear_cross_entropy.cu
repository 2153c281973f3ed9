// What fused_linear_cross_entropy does beside matrix products and the rows of logits.
#include "columns.cuh"
#include "kernels.h"
#include "opwheel/cuda/rows.cuh"
#include "rows.cuh"

namespace transformer_ops::cuda {

template <class T, class X>
struct ScaledRows {
  static constexpr int kHeld = 4;

  Scaled a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    const C factor = *static_cast<const C*>(a.factor);
    team.for_rows([&](int64_t i) {
      const auto x = team.load(static_cast<const X*>(a.x) + i * a.x_stride);
      team.store(static_cast<T*>(a.y) + i * a.length, [&](auto at) { return x[at] * factor; });
    });
  }
};

template <class T>
struct AccumulateRows {
  static constexpr int kHeld = 4;

  Accumulate a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    team.for_rows([&](int64_t i) {
      const auto x = team.load(static_cast<const T*>(a.x) + i * a.length);
      C* const sum = static_cast<C*>(a.sum) + i * a.length;
      if (a.adds) {
        const auto before = team.load(static_cast<const C*>(sum));
        team.store(sum, [&](auto at) { return before[at] + x[at]; });
      } else {
        team.store(sum, [&](auto at) { return x[at]; });
      }
    });
  }
};

void run(Device device, ScalarType dtype, const Scaled& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.y}, {a.x_stride});
    if (a.x_is_wide) {
      run_rows<T>(device, rows, a.length, is_aligned, ScaledRows<T, ComputeType<T>>{a});
    } else {
      run_rows<T>(device, rows, a.length, is_aligned, ScaledRows<T, T>{a});
    }
  });
}

void run(Device device, ScalarType dtype, const Accumulate& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.sum});
    run_rows<T>(device, rows, a.length, is_aligned, AccumulateRows<T>{a});
  });
}

void run(Device device, ScalarType dtype, const ColumnSums& a, int64_t, int64_t) {
  dispatch(dtype, [&]<class T>() {
    using C = ComputeType<T>;
    sum_columns<T, C>(device, static_cast<const T*>(a.x), static_cast<C*>(a.sums), nullptr, a.rows, a.length, a.adds);
  });
}

}  // namespace transformer_ops::cuda
