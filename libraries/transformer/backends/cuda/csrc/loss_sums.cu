// What losses of rows are summed up to: a block of threads for all rows.
#include <cassert>

#include "kernels.h"
#include "opwheel/cuda/rows.cuh"
#include "rows.cuh"

namespace transformer_ops::cuda {

// Weights of the tokens and of their targets; 1 where there are none, and 0 for rows that do not count.
template <class C>
struct TokenWeights {
  const int64_t* target;
  const C *weight, *token_weight;
  int64_t rows, ignore_index;

  template <class Arguments>
  explicit TokenWeights(const Arguments& a)
      : target(a.target),
        weight(static_cast<const C*>(a.weight)),
        token_weight(static_cast<const C*>(a.token_weight)),
        rows(a.rows),
        ignore_index(a.ignore_index) {}

  __device__ C of_token(int64_t i) const {
    if (target[i] == ignore_index) return C(0);
    return token_weight == nullptr ? C(1) : token_weight[i];
  }
  __device__ C of_class(int64_t i) const {
    if (target[i] == ignore_index) return C(0);
    return of_token(i) * (weight == nullptr ? C(1) : weight[target[i]]);
  }
};

template <class C>
struct LossTotalOf {
  LossTotal a;
  TokenWeights<C> tokens;

  explicit LossTotalOf(const LossTotal& given) : a(given), tokens(given) {}

  __device__ void operator()(int64_t) const {
    namespace cuda = opwheel::cuda;
    const C *const losses = static_cast<const C*>(a.row_loss), *const lse = static_cast<const C*>(a.lse);
    const auto z_of = [&](int64_t i) { return tokens.of_token(i) * C(a.lse_square_scale) * lse[i] * lse[i]; };
    C cross_entropy = cuda::sum<C>(a.rows, [&](int64_t i) { return losses[i]; });
    C z = cuda::sum<C>(a.rows, z_of);
    if (a.divisors != nullptr) {
      const C of_entropy = cuda::sum<C>(a.rows, [&](int64_t i) { return tokens.of_class(i); });
      const C of_z = cuda::sum<C>(a.rows, [&](int64_t i) { return tokens.of_token(i); });
      cross_entropy /= of_entropy;
      z /= of_z;
      cuda::for_each(1, [&](int64_t) {
        static_cast<C*>(a.divisors)[0] = of_entropy;
        static_cast<C*>(a.divisors)[1] = of_z;
      });
    }
    cuda::for_each(1, [&](int64_t) { *static_cast<C*>(a.loss) = cross_entropy + z; });
  }
};

template <class C>
struct LossScaleOf {
  LossScale a;
  TokenWeights<C> tokens;

  explicit LossScaleOf(const LossScale& given) : a(given), tokens(given) {}

  __device__ void operator()(int64_t) const {
    namespace cuda = opwheel::cuda;
    const C* const grad = static_cast<const C*>(a.grad);
    const C counted = cuda::sum<C>(a.rows, [&](int64_t i) { return C(a.target[i] != a.ignore_index); });
    C of_entropy = C(1), of_z = C(1), largest = C(1);
    if (a.is_mean) {
      of_entropy = cuda::sum<C>(a.rows, [&](int64_t i) {
        // No other kernel has seen the targets yet.
        const int64_t target = a.target[i];
        assert((target == a.ignore_index || (target >= 0 && target < a.classes)) &&
               "argument 'target' has an element that is no class");
        return tokens.of_class(i);
      });
      of_z = cuda::sum<C>(a.rows, [&](int64_t i) { return tokens.of_token(i); });
    }
    // What the operator for training returns must not depend on the dtype.
    if (grad == nullptr ? a.token_weight != nullptr : a.is_narrow) {
      largest = cuda::maximum<C>(a.rows, C(0), [&](int64_t i) {
        const C token = tokens.of_token(i);
        return token == 0 ? C(0) : std::fabs(grad == nullptr ? token : grad[i] * token);
      });
      if (!(largest > 0 && std::isfinite(largest))) largest = C(1);
    }
    cuda::for_each(1, [&](int64_t) {
      static_cast<C*>(a.divisors)[0] = largest;
      static_cast<C*>(a.divisors)[1] = largest * (of_z / of_entropy);
      *static_cast<C*>(a.factor) = counted > 0 ? largest / of_entropy : C(0);
    });
  }
};

// In the dtype that is computed in.
template <template <class> class F, class Arguments>
void run_for_all(Device device, ScalarType dtype, const Arguments& a) {
  if (dtype == ScalarType::Double) {
    opwheel::cuda::for_rows(device, 1, a.rows, F<double>(a));
  } else {
    opwheel::cuda::for_rows(device, 1, a.rows, F<float>(a));
  }
}

void run(Device device, ScalarType dtype, const LossTotal& a, int64_t, int64_t) {
  run_for_all<LossTotalOf>(device, dtype, a);
}

void run(Device device, ScalarType dtype, const LossScale& a, int64_t, int64_t) {
  run_for_all<LossScaleOf>(device, dtype, a);
}

}  // namespace transformer_ops::cuda
