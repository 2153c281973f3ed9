// Rotary position embedding. Included by kernels.inc.h.

// The row of cos and sin for row i of q or k, and where that row begins.
template <class T>
inline const T* rotated_row(const Rope& a, const void* data, const int64_t (&strides)[3], int64_t i, int64_t& angle) {
  const int64_t s = a.heads_first ? i % a.positions : i / a.heads % a.positions;
  const int64_t h = a.heads_first ? i / a.positions % a.heads : i % a.heads;
  const int64_t b = i / (a.heads * a.positions);
  if (a.position_ids != nullptr) {
    angle = a.position_ids[(a.position_batches > 1 ? b * a.positions : 0) + s];
  } else {
    angle = (a.angle_batches > 1 ? b * a.positions : 0) + s;
  }
  return static_cast<const T*>(data) + b * strides[0] + h * strides[1] + s * strides[2];
}

// A pair (u, v) turns into (u cos - v sin, v cos + u sin). Pairs are k and k + length / 2 or, interleaved, 2 k and 2 k
// + 1.
template <class T>
void rope(const Rope& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t half = a.length / 2;
  for (int64_t i = begin; i < end; ++i) {
    int64_t angle;
    const T* x = rotated_row<T>(a, a.x, a.strides, i, angle);
    const T *cos = static_cast<const T*>(a.cos) + angle * a.angle_stride,
            *sin = static_cast<const T*>(a.sin) + angle * a.angle_stride;
    T* y = static_cast<T*>(a.y) + i * a.length;
    const C sign = a.backwards ? C(-1) : C(1);
    if (a.interleaved) {
      for (int64_t k = 0; k < half; ++k) {
        const C u = static_cast<C>(widen(x[2 * k])), v = static_cast<C>(widen(x[2 * k + 1]));
        const C c = static_cast<C>(widen(cos[k])), s = sign * static_cast<C>(widen(sin[k]));
        y[2 * k] = narrow<T>(u * c - v * s);
        y[2 * k + 1] = narrow<T>(v * c + u * s);
      }
    } else {
      for_vectors<C>(half, [&](auto at) {
        const auto u = get(x, at), v = get(x + half, at), c = get(cos, at), s = get(sin, at) * sign;
        put(y, at, u * c - v * s);
        put(y + half, at, v * c + u * s);
      });
    }
  }
}
