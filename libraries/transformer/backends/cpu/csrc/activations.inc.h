// swiglu and geglu: an activation of one half times the other. Included by kernels.inc.h.

// silu(x) = x * sigmoid(x); its derivative is sigmoid(x) * (1 + x * (1 - sigmoid(x))).
struct Silu {
  template <class C>
  static C value(C x) {
    return x * sigmoid(x);
  }
  template <class C>
  static void value_and_derivative(C x, C& value, C& derivative) {
    const C s = sigmoid(x);
    value = x * s;
    derivative = s * (C(1) + x * (C(1) - s));
  }
};

// gelu(x) = x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 x^3); (1 + tanh(u)) / 2 is sigmoid(2 u).
struct GeluTanh {
  static constexpr double kFactor = 2 * 0.7978845608028654, kCubic = 0.044715;
  template <class C>
  static C value(C x) {
    return x * sigmoid(C(kFactor) * (x + C(kCubic) * x * x * x));
  }
  template <class C>
  static void value_and_derivative(C x, C& value, C& derivative) {
    const C s = sigmoid(C(kFactor) * (x + C(kCubic) * x * x * x));
    const C slope = C(kFactor) * (C(1) + C(3 * kCubic) * x * x);
    value = x * s;
    derivative = s + x * s * (C(1) - s) * slope;
  }
};

// gelu(x) = x * (1 + erf(x / sqrt(2))) / 2
struct Gelu {
  static constexpr double kRoot = 0.7071067811865476, kDensity = 0.3989422804014327;  // 1/sqrt(2), 1/sqrt(2 pi)
  template <class C>
  static C value(C x) {
    return x * C(0.5) * (C(1) + erf(x * C(kRoot)));
  }
  template <class C>
  static void value_and_derivative(C x, C& value, C& derivative) {
    const C phi = C(0.5) * (C(1) + erf(x * C(kRoot)));
    value = x * phi;
    derivative = phi + x * C(kDensity) * exp_of_negative(C(-0.5) * x * x);
  }
};

template <class F, class T>
void gated_rows(const Gated& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  Buffer<C> a_buffer(n), b_buffer(n);
  for (int64_t i = begin; i < end; ++i) {
    const C* u = load(static_cast<const T*>(a.a) + i * a.a_stride, a_buffer.data, n);
    const C* v = load(static_cast<const T*>(a.b) + i * a.b_stride, b_buffer.data, n);
    T* row = static_cast<T*>(a.y) + i * n;
    C* y = place(row, a_buffer.data);
    if constexpr (kIs<T, C>) {
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] = F::value(u[k]) * v[k];
    } else {
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] = F::value(u[k]);
      round_to<T>(y, n);
      OPWHEEL_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] *= v[k];
    }
    store(row, y, n);
  }
}

template <class F, class T>
void gated_rows_backward(const GatedBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  Buffer<C> a_buffer(n), b_buffer(n), g_buffer(n);
  for (int64_t i = begin; i < end; ++i) {
    const C* u = load(static_cast<const T*>(a.a) + i * a.a_stride, a_buffer.data, n);
    const C* v = load(static_cast<const T*>(a.b) + i * a.b_stride, b_buffer.data, n);
    const C* g = load(static_cast<const T*>(a.grad) + i * a.grad_stride, g_buffer.data, n);
    T *da_row = static_cast<T*>(a.da) + i * n, *db_row = static_cast<T*>(a.db) + i * n;
    C *da = place(da_row, a_buffer.data), *db = place(db_row, b_buffer.data);
    OPWHEEL_INDEPENDENT
    for (int64_t k = 0; k < n; ++k) {
      C value, derivative;
      F::value_and_derivative(u[k], value, derivative);
      const C gradient = g[k];
      da[k] = gradient * v[k] * derivative;
      db[k] = gradient * value;
    }
    store(da_row, da, n);
    store(db_row, db, n);
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
