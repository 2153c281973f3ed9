// Rotary position embedding. Included by kernels.inc.h.

// Where row i of q or k is: its batch, and its head and position, of which the last one counts fastest.
struct RopeRow {
  int64_t batch, outer, inner, inner_count, outer_count;
  RopeRow(const Rope& a, int64_t i)
      : inner_count(a.heads_first ? a.positions : a.heads), outer_count(a.heads_first ? a.heads : a.positions) {
    inner = i % inner_count;
    outer = i / inner_count % outer_count;
    batch = i / inner_count / outer_count;
  }
  int64_t head(const Rope& a) const { return a.heads_first ? outer : inner; }
  int64_t position(const Rope& a) const { return a.heads_first ? inner : outer; }
  void next() {
    if (++inner < inner_count) return;
    inner = 0;
    if (++outer < outer_count) return;
    outer = 0;
    ++batch;
  }
};

// Pairs are halves as in turn_halves() or, interleaved, 2 k and 2 k + 1.
template <class T>
void rope(const Rope& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t half = a.length / 2;
  const bool has_ids = a.position_ids != nullptr;
  const int64_t batch_step = (has_ids ? a.position_batches : a.angle_batches) > 1 ? a.positions : 0;
  const auto at_row = [&](const RopeRow& row) {
    return static_cast<const T*>(a.x) + row.batch * a.strides[0] + row.head(a) * a.strides[1] +
           row.position(a) * a.strides[2];
  };
  constexpr int64_t kAhead = 16;  // rows
  RopeRow row(a, begin), ahead(a, begin + kAhead);
  for (int64_t i = begin; i < end; ++i, row.next(), ahead.next()) {
    if (i + kAhead < end) prefetch_row(at_row(ahead), a.length);
    int64_t angle = row.batch * batch_step + row.position(a);
    if (has_ids) angle = a.position_ids[angle];
    const T* x = at_row(row);
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
      turn_halves(x, cos, sin, sign, half, y);
    }
  }
}
