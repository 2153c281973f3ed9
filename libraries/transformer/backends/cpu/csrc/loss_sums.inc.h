// What losses of rows are summed up to, on one thread. Included by arguments.h.

// Weights of the tokens and of their targets; 1 where there are none.
template <class C>
struct TokenWeights {
  const int64_t* target;
  const C *weight, *token_weight;
  int64_t rows, ignore_index;

  // Calls each(i, token's weight) for the rows that count.
  template <class Each>
  void for_counted(const Each& each) const {
    for (int64_t i = 0; i < rows; ++i) {
      if (target[i] != ignore_index) each(i, token_weight == nullptr ? 1.0 : static_cast<double>(token_weight[i]));
    }
  }
  // What a mean divides cross entropies by, and z-losses.
  std::array<double, 2> divisors() const {
    double weights = 0, tokens = 0;
    for_counted([&](int64_t i, double token) {
      weights += token * (weight == nullptr ? 1.0 : static_cast<double>(weight[target[i]]));
      tokens += token;
    });
    return {weights, tokens};
  }
};

template <class C, class Arguments>
TokenWeights<C> token_weights_of(const Arguments& a) {
  return {a.target, static_cast<const C*>(a.weight), static_cast<const C*>(a.token_weight), a.rows, a.ignore_index};
}

inline void run(opwheel::Device, ScalarType dtype, const LossTotal& a, int64_t, int64_t) {
  opwheel::dispatch(dtype, [&]<class C> {
    const TokenWeights<C> tokens = token_weights_of<C>(a);
    double cross_entropy = 0, z = 0;
    tokens.for_counted([&](int64_t i, double token) {
      const double lse = static_cast<const C*>(a.lse)[i];
      cross_entropy += static_cast<const C*>(a.row_loss)[i];
      z += token * a.lse_square_scale * lse * lse;
    });
    if (a.divisors != nullptr) {
      const auto [of_entropy, of_z] = tokens.divisors();
      cross_entropy /= of_entropy;
      z /= of_z;
      static_cast<C*>(a.divisors)[0] = static_cast<C>(of_entropy);
      static_cast<C*>(a.divisors)[1] = static_cast<C>(of_z);
    }
    *static_cast<C*>(a.loss) = static_cast<C>(cross_entropy + z);
  });
}

inline void run(opwheel::Device, ScalarType dtype, const LossScale& a, int64_t, int64_t) {
  opwheel::dispatch(dtype, [&]<class C> {
    const TokenWeights<C> tokens = token_weights_of<C>(a);
    const C* const grad = static_cast<const C*>(a.grad);
    double largest = 0;
    int64_t counted = 0;
    tokens.for_counted([&](int64_t i, double token) {
      largest = std::max(largest, std::abs(grad == nullptr ? token : grad[i] * token));
      ++counted;
    });
    // What the operator for training returns must not depend on the dtype.
    const bool divides = grad == nullptr ? a.token_weight != nullptr : a.is_narrow;
    if (!divides || !(largest > 0 && std::isfinite(largest))) largest = 1;
    const auto [of_entropy, of_z] = a.is_mean ? tokens.divisors() : std::array<double, 2>{1, 1};
    static_cast<C*>(a.divisors)[0] = static_cast<C>(largest);
    static_cast<C*>(a.divisors)[1] = static_cast<C>(largest * (of_z / of_entropy));
    *static_cast<C*>(a.factor) = static_cast<C>(counted == 0 ? 0 : largest / of_entropy);
  });
}
