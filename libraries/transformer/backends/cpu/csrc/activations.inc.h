// swiglu and geglu: an activation of one half times the other. Included by kernels.inc.h.

// A constant of the type that a vector's elements have.
template <class V>
constexpr auto number(double value) {
  return static_cast<decltype(V{}[0] + 0)>(value);
}

// Derivatives are taken of sigmoid(), not of sigmoid_for<T>(): 1 - s is small where s is nearly 1, and they have a
// zero.

// silu(x) = x * sigmoid(x); its derivative is sigmoid(x) * (1 + x * (1 - sigmoid(x))).
struct Silu {
  template <class T, class V>
  static V value(V x) {
    return x * sigmoid_for<T>(x);
  }
  template <class V>
  static void value_and_derivative(V x, V& value, V& derivative) {
    const V s = sigmoid(x);
    value = x * s;
    derivative = s * (1 + x * (1 - s));
  }
};

// gelu(x) = x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 x^3); (1 + tanh(u)) / 2 is sigmoid(2 u).
struct GeluTanh {
  template <class V>
  static V doubled_u(V x) {
    return x * number<V>(kFactor) * (1 + number<V>(kCubic) * x * x);
  }
  static constexpr double kFactor = 2 * 0.7978845608028654, kCubic = 0.044715;
  template <class T, class V>
  static V value(V x) {
    return x * sigmoid_for<T>(doubled_u(x));
  }
  template <class V>
  static void value_and_derivative(V x, V& value, V& derivative) {
    const V s = sigmoid(doubled_u(x));
    const V slope = number<V>(kFactor) * (1 + number<V>(3 * kCubic) * x * x);
    value = x * s;
    derivative = s + x * s * (1 - s) * slope;
  }
};

// gelu(x) = x * (1 + erf(x / sqrt(2))) / 2
struct Gelu {
  static constexpr double kRoot = 0.7071067811865476, kDensity = 0.3989422804014327;  // 1/sqrt(2), 1/sqrt(2 pi)
  template <class T, class V>
  static V value(V x) {
    return x * number<V>(0.5) * (1 + erf(x * number<V>(kRoot)));
  }
  template <class V>
  static void value_and_derivative(V x, V& value, V& derivative) {
    const V phi = number<V>(0.5) * (1 + erf(x * number<V>(kRoot)));
    value = x * phi;
    derivative = phi + x * number<V>(kDensity) * exp_of_negative(number<V>(-0.5) * x * x);
  }
};

// u activated, times v.
template <class F, class T>
inline void gate(int64_t n, const T* u, const T* v, T* result, bool stream) {
  T* const y[] = {result};
  const auto product = [](auto& values, auto from_u, auto from_v) {
    values[0] = rounded_roughly<T>(F::template value<T>(from_u)) * from_v;
  };
  map(n, y, stream, product, u, v);
}

// Short rows with gaps, of which the results have none, are brought together first: each would be little but a tail.
template <class F, class T>
void gated_short_rows(const Gated& a, int64_t begin, int64_t end) {
  constexpr int64_t kMost = 1024;
  const int64_t n = a.length, most = kMost / n;
  T u[kMost], v[kMost];
  const auto gather = [&](const void* from, int64_t stride, int64_t first, int64_t rows, T* to) {
    const T* x = static_cast<const T*>(from) + first * stride;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < n; ++k) to[r * n + k] = x[r * stride + k];
    }
  };
  T* const y = static_cast<T*>(a.y);
  for (int64_t i = begin; i < end; i += most) {
    const int64_t rows = end - i < most ? end - i : most;
    if (i > begin && a.a_stride == 0 && a.b_stride == 0) {  // the same row again
      __builtin_memcpy(y + i * n, y + begin * n, rows * n * sizeof(T));
      continue;
    }
    gather(a.a, a.a_stride, i, rows, u);
    gather(a.b, a.b_stride, i, rows, v);
    gate<F, T>(rows * n, u, v, y + i * n, false);
  }
}

// Rows that follow each other without gaps are computed as one.
template <class F, class T>
void gated_rows(const Gated& a, int64_t begin, int64_t end) {
  const bool has_gaps = a.a_stride != a.length || a.b_stride != a.length || a.y_stride != a.length;
  if (has_gaps && a.y_stride == a.length && 0 < a.length && a.length <= 4) return gated_short_rows<F, T>(a, begin, end);
  const int64_t rows = has_gaps ? 1 : end - begin;
  for (int64_t i = begin; i < end; i += rows) {
    const T* u = static_cast<const T*>(a.a) + i * a.a_stride;
    const T* v = static_cast<const T*>(a.b) + i * a.b_stride;
    gate<F, T>(rows * a.length, u, v, static_cast<T*>(a.y) + i * a.y_stride, a.stream);
  }
}

template <class F, class T>
void gated_rows_backward(const GatedBackward& a, int64_t begin, int64_t end) {
  const bool has_gaps = a.grad_stride != a.length || a.a_stride != a.length || a.b_stride != a.length;
  const int64_t rows = has_gaps ? 1 : end - begin;
  for (int64_t i = begin; i < end; i += rows) {
    const T* u = static_cast<const T*>(a.a) + i * a.a_stride;
    const T* v = static_cast<const T*>(a.b) + i * a.b_stride;
    const T* g = static_cast<const T*>(a.grad) + i * a.grad_stride;
    T* const gradients[] = {static_cast<T*>(a.da) + i * a.length, static_cast<T*>(a.db) + i * a.length};
    const auto both = [](auto& result, auto from_u, auto from_v, auto grad) {
      Vector<ComputeType<T>> value, derivative;
      F::value_and_derivative(from_u, value, derivative);
      result[0] = grad * from_v * derivative;
      result[1] = grad * value;
    };
    map(rows * a.length, gradients, a.stream, both, u, v, g);
  }
}

template <class T>
void gated(const Gated& a, int64_t begin, int64_t end) {
  switch (a.activation) {
    case Activation::silu:
      return gated_rows<Silu, T>(a, begin, end);
    case Activation::gelu_tanh:
      return gated_rows<GeluTanh, T>(a, begin, end);
    case Activation::gelu:
      return gated_rows<Gelu, T>(a, begin, end);
  }
}

template <class T>
void gated_backward(const GatedBackward& a, int64_t begin, int64_t end) {
  switch (a.activation) {
    case Activation::silu:
      return gated_rows_backward<Silu, T>(a, begin, end);
    case Activation::gelu_tanh:
      return gated_rows_backward<GeluTanh, T>(a, begin, end);
    case Activation::gelu:
      return gated_rows_backward<Gelu, T>(a, begin, end);
  }
}
