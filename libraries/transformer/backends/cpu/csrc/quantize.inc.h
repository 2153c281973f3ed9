// Rows of int8 with a scale each. Included by kernels.inc.h.

// scale = max(|x|) / 127, nan if one is; q = round(x / scale), to the nearest, ties to even, and 0 where that is no
// number.
template <class T>
void quantize(const Quantize& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t n = a.length;
  const auto magnitude = [](auto value) { return value < 0 ? -value : value; };
  const auto larger_or_nan = [](auto x, auto y) { return (x > y) | (x != x) ? x : y; };
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(a.x) + i * a.x_stride;
    int8_t* q = static_cast<int8_t*>(a.q) + i * n;
    const C largest = reduce<C>(n, C(0), [&](auto at) { return magnitude(get(x, at)); }, larger_or_nan);
    const float scale = static_cast<float>(largest) / 127.0f;
    static_cast<float*>(a.scale)[i] = scale;
    if (!__builtin_isfinite(scale)) {
      __builtin_memset(q, 0, static_cast<std::size_t>(n));
      continue;
    }
    const float divisor = scale > 0 ? scale : 1.0f;
    for (int64_t k = 0; k < n; ++k) {
      const float nearest = __builtin_rintf(static_cast<float>(widen(x[k])) / divisor);
      // Tiny scales have few bits: a quotient may be larger than 127.
      q[k] = static_cast<int8_t>(nearest > 127.0f ? 127.0f : nearest < -127.0f ? -127.0f : nearest);
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
