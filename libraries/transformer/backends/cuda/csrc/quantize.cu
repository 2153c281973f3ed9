// Rows of int8 with a scale each.
#include "kernels.h"
#include "rows.cuh"

namespace transformer_ops::cuda {

// scale = max(|x|) / 127, nan if one is; q = round(x / scale), to the nearest, ties to even, and 0 where that is no
// number.
template <class T>
struct QuantizeRows {
  static constexpr int kHeld = 4;
  static constexpr bool kUsesClusters = true;

  Quantize a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    team.for_rows([&](int64_t i) {
      const auto x = team.load(static_cast<const T*>(a.x) + i * a.x_stride);
      const auto magnitude = [](C value) { return value < 0 ? -value : value; };
      const C largest = team.maximum(C(0), [&](auto at) { return map(magnitude, x[at]); });
      const float scale = static_cast<float>(largest) / 127.0f;
      if (team.is_first()) static_cast<float*>(a.scale)[i] = scale;
      const bool is_finite = std::isfinite(scale);
      const float divisor = scale > 0 ? scale : 1.0f;
      team.store(static_cast<int8_t*>(a.q) + i * a.length, [&](auto at) {
        return map(
            [&](C value) {
              // Tiny scales have few bits: a quotient may be larger than 127.
              const float nearest = std::rint(static_cast<float>(value) / divisor);
              return is_finite ? static_cast<C>(std::fmin(std::fmax(nearest, -127.0f), 127.0f)) : C(0);
            },
            x[at]);
      });
    });
  }
};

template <class T>
struct DequantizeRows {
  static constexpr int kHeld = 4;

  Dequantize a;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    team.for_rows([&](int64_t i) {
      const auto q = team.load(static_cast<const int8_t*>(a.q) + i * a.length);
      const float scale = static_cast<const float*>(a.scale)[i];
      const auto product = [scale](C value) { return static_cast<C>(static_cast<float>(value) * scale); };
      team.store(static_cast<T*>(a.x) + i * a.length, [&](auto at) { return map(product, q[at]); });
    });
  }
};

void run(Device device, ScalarType dtype, const Quantize& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.x, a.q}, {a.x_stride});
    run_rows<T>(device, rows, a.length, is_aligned, QuantizeRows<T>{a});
  });
}

void run(Device device, ScalarType dtype, const Dequantize& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.q, a.x});
    run_rows<T>(device, rows, a.length, is_aligned, DequantizeRows<T>{a});
  });
}

}  // namespace transformer_ops::cuda
