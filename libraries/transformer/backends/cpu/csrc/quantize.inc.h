// Rows of int8 with a scale each. Included by kernels.inc.h.

// scale = max(|x|) / 127, q = round(x / scale), to the nearest, ties to even.
template <class T>
void quantize(const Quantize& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(a.x) + i * a.x_stride;
    int8_t* q = static_cast<int8_t*>(a.q) + i * n;
    const C largest = maximum<C>(n, C(0), [&](auto at) {
      const auto value = get(x, at);
      return value < 0 ? -value : value;
    });
    const float scale = static_cast<float>(largest) / 127.0f;
    static_cast<float*>(a.scale)[i] = scale;
    const float divisor = scale > 1e-12f ? scale : 1e-12f;
    for (int64_t k = 0; k < n; ++k) {
      q[k] = static_cast<int8_t>(__builtin_rintf(static_cast<float>(widen(x[k])) / divisor));
    }
  }
}

template <class T>
void dequantize(const Dequantize& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int8_t* q = static_cast<const int8_t*>(a.q) + i * a.length;
    T* x = static_cast<T*>(a.x) + i * a.length;
    const float scale = static_cast<const float*>(a.scale)[i];
    for (int64_t k = 0; k < a.length; ++k) x[k] = narrow<T>(static_cast<float>(q[k]) * scale);
  }
}
