// How rope and attention turn a row by the angles of its position. Included by kernels.inc.h.

// A pair (u, v) turns into (u cos - v sin, v cos + u sin); pairs are k and k + half. y may be x.
template <class X, class T, class C>
inline void turn_halves(const X* x, const T* cos, const T* sin, C sign, int64_t half, X* y) {
  for_vectors<C>(half, [&](auto at) {
    const auto u = get(x, at), v = get(x + half, at), c = get(cos, at), s = get(sin, at) * sign;
    put(y, at, u * c - v * s);
    put(y + half, at, v * c + u * s);
  });
}
