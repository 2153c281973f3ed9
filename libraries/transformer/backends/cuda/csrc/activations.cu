// swiglu and geglu: an activation of one half times the other.
#include "kernels.h"
#include "rows.cuh"

namespace transformer_ops::cuda {

template <class C>
struct Activated {
  C value, derivative;
};

// Derivatives are taken of sigmoid(), not of sigmoid_for<T>(): 1 - s is small where s is nearly 1, and they have a
// zero.

// silu(x) = x * sigmoid(x); its derivative is sigmoid(x) * (1 + x * (1 - sigmoid(x))).
struct Silu {
  template <class T, class C>
  static __device__ C value(C x) {
    return x * sigmoid_for<T>(x);
  }
  template <class C>
  static __device__ Activated<C> with_derivative(C x) {
    const C s = sigmoid(x);
    return {x * s, s * (1 + x * (1 - s))};
  }
};

// gelu(x) = x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 x^3); (1 + tanh(u)) / 2 is sigmoid(2 u).
struct GeluTanh {
  static constexpr double kFactor = 2 * 0.7978845608028654, kCubic = 0.044715;
  template <class C>
  static __device__ C doubled_u(C x) {
    return x * C(kFactor) * (1 + C(kCubic) * x * x);
  }
  template <class T, class C>
  static __device__ C value(C x) {
    return x * sigmoid_for<T>(doubled_u(x));
  }
  template <class C>
  static __device__ Activated<C> with_derivative(C x) {
    const C s = sigmoid(doubled_u(x)), slope = C(kFactor) * (1 + C(3 * kCubic) * x * x);
    return {x * s, s + x * s * (1 - s) * slope};
  }
};

// gelu(x) = x * (1 + erf(x / sqrt(2))) / 2
struct Gelu {
  static constexpr double kRoot = 0.7071067811865476, kDensity = 0.3989422804014327;  // 1/sqrt(2), 1/sqrt(2 pi)
  template <class T, class C>
  static __device__ C value(C x) {
    return x * C(0.5) * (1 + std::erf(x * C(kRoot)));
  }
  template <class C>
  static __device__ Activated<C> with_derivative(C x) {
    const C phi = C(0.5) * (1 + std::erf(x * C(kRoot)));
    return {x * phi, phi + x * C(kDensity) * std::exp(C(-0.5) * x * x)};
  }
};

// Long rows are cut into 2^shift parts, so that each thread has one vector: with several it would have to wait for the
// first before it loads the second, which may be where the first is written.
template <class T>
int shift_of_parts(int64_t length, bool is_aligned) {
  const int64_t vectors = is_aligned ? length / (opwheel::cuda::kVectorBytes / sizeof(T)) : length;
  int shift = 0;
  while (vectors >> shift > opwheel::cuda::kMostOfTeam && (vectors >> shift) % 2 == 0) ++shift;
  return shift;
}
struct Part {
  int64_t row, begin;
};
__device__ inline Part part_of_row(int64_t i, int shift, int64_t length) {
  const int64_t row = i >> shift;
  return {row, (i - (row << shift)) * length};
}

template <class F, class T>
struct GatedRows {
  static constexpr int kHeld = 1;

  Gated a;
  int shift;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    using C = ComputeType<T>;
    team.for_rows([&](int64_t i) {
      const auto [row, begin] = part_of_row(i, shift, team.length());
      const auto u = team.load(static_cast<const T*>(a.a) + row * a.a_stride + begin);
      const auto v = team.load(static_cast<const T*>(a.b) + row * a.b_stride + begin);
      team.store(static_cast<T*>(a.y) + row * a.y_stride + begin,
                 [&](auto at) { return rounded<T>(map([](C x) { return F::template value<T>(x); }, u[at])) * v[at]; });
    });
  }
};

template <class F, class T>
struct GatedRowsBackward {
  static constexpr int kHeld = 1;

  GatedBackward a;
  int shift;

  template <class Team>
  __device__ void operator()(const Team& team) const {
    team.for_rows([&](int64_t i) {
      const auto [row, begin] = part_of_row(i, shift, team.length());
      const auto u = team.load(static_cast<const T*>(a.a) + row * a.a_stride + begin);
      const auto v = team.load(static_cast<const T*>(a.b) + row * a.b_stride + begin);
      const auto grad = team.load(static_cast<const T*>(a.grad) + row * a.grad_stride + begin);
      const int64_t to = row * a.length + begin;
      T *const da = static_cast<T*>(a.da) + to, *const db = static_cast<T*>(a.db) + to;
      team.for_each([&](auto at) {
        const auto x = u[at], y = v[at], g = grad[at];
        typename Team::Values of_u, of_v;
        OPWHEEL_UNROLL
        for (int k = 0; k < Team::kWidth; ++k) {
          const auto activated = F::with_derivative(x.values[k]);
          of_u.values[k] = g.values[k] * y.values[k] * activated.derivative;
          of_v.values[k] = g.values[k] * activated.value;
        }
        team.write(da, at, of_u);
        team.write(db, at, of_v);
      });
    });
  }
};

template <class Body>
void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::silu:
      return body.template operator()<Silu>();
    case Activation::gelu_tanh:
      return body.template operator()<GeluTanh>();
    case Activation::gelu:
      return body.template operator()<Gelu>();
  }
}

void run(Device device, ScalarType dtype, const Gated& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned = are_aligned<T>(a.length, {a.a, a.b, a.y}, {a.a_stride, a.b_stride, a.y_stride});
    const int shift = shift_of_parts<T>(a.length, is_aligned);
    with_activation(a.activation, [&]<class F>() {
      run_rows<T>(device, rows << shift, a.length >> shift, is_aligned, GatedRows<F, T>{a, shift});
    });
  });
}

void run(Device device, ScalarType dtype, const GatedBackward& a, int64_t rows, int64_t) {
  dispatch(dtype, [&]<class T>() {
    const bool is_aligned =
        are_aligned<T>(a.length, {a.grad, a.a, a.b, a.da, a.db}, {a.grad_stride, a.a_stride, a.b_stride});
    const int shift = shift_of_parts<T>(a.length, is_aligned);
    with_activation(a.activation, [&]<class F>() {
      run_rows<T>(device, rows << shift, a.length >> shift, is_aligned, GatedRowsBackward<F, T>{a, shift});
    });
  });
}

}  // namespace transformer_ops::cuda
