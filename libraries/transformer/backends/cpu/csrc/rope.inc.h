// Rotary position embedding. Included by kernels.inc.h.

// The rows of q or k, in the order in which they are turned: all heads of a block of positions, whose angles so stay in
// the cache. One position at a time where its heads follow each other in memory.
class RopeRow {
 public:
  int64_t batch, head, position;

  RopeRow(const Rope& a, int64_t i)
      : heads_(a.heads), positions_(a.positions), heads_first_(a.heads_first), block_(heads_first_ ? kBlock : 1) {
    const int64_t of_batch = heads_ * positions_, of_block = heads_ * block_;
    batch = i / of_batch;
    first_ = i % of_batch / of_block * block_;
    const int64_t in_block = i % of_batch % of_block, count = last() - first_;
    head = in_block / count;
    position = first_ + in_block % count;
  }
  void next() {
    if (++position < last()) return;
    if (++head == heads_) {
      head = 0;
      first_ = last();
      if (first_ == positions_) {
        first_ = 0;
        ++batch;
      }
    }
    position = first_;
  }
  // Its place in a result whose dimensions are contiguous.
  int64_t index() const {
    return heads_first_ ? (batch * heads_ + head) * positions_ + position
                        : (batch * positions_ + position) * heads_ + head;
  }

 private:
  static constexpr int64_t kBlock = 32;
  int64_t last() const { return first_ + block_ < positions_ ? first_ + block_ : positions_; }

  int64_t heads_, positions_;
  bool heads_first_;
  int64_t block_, first_;
};

// Pairs are halves as in turn_halves() or, interleaved, 2 k and 2 k + 1.
template <class T>
void turn_rows(const Rope& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t half = a.length / 2;
  const bool has_ids = a.position_ids != nullptr;
  const int64_t batch_step = (has_ids ? a.position_batches : a.angle_batches) > 1 ? a.positions : 0;
  const auto at_row = [&](const RopeRow& row) {
    return static_cast<const T*>(a.x) + row.batch * a.strides[0] + row.head * a.strides[1] +
           row.position * a.strides[2];
  };
  constexpr int64_t kAhead = 16;  // rows
  RopeRow row(a, begin), ahead(a, begin + kAhead);
  for (int64_t i = begin; i < end; ++i, row.next(), ahead.next()) {
    if (i + kAhead < end) prefetch_row(at_row(ahead), a.length);
    int64_t angle = row.batch * batch_step + row.position;
    if (has_ids) angle = a.position_ids[angle];
    const T* x = at_row(row);
    const T *cos = static_cast<const T*>(a.cos) + angle * a.angle_stride,
            *sin = static_cast<const T*>(a.sin) + angle * a.angle_stride;
    T* y = static_cast<T*>(a.y) + row.index() * a.length;
    if (a.interleaved) {
      for (int64_t k = 0; k < half; ++k) {
        const C u = static_cast<C>(widen(x[2 * k])), v = static_cast<C>(widen(x[2 * k + 1]));
        const C c = static_cast<C>(widen(cos[k])), s = static_cast<C>(widen(sin[k]));
        y[2 * k] = narrow<T>(u * c - v * s);
        y[2 * k + 1] = narrow<T>(v * c + u * s);
      }
    } else {
      turn_halves(x, cos, sin, C(1), half, y);
    }
  }
}

template <class T>
void rope(const RopePair& a, int64_t begin, int64_t end) {
  const int64_t of_q = end < a.q_rows ? end : a.q_rows, of_k = begin > a.q_rows ? begin : a.q_rows;
  if (begin < of_q) turn_rows<T>(a.q, begin, of_q);
  if (of_k < end) turn_rows<T>(a.k, of_k - a.q_rows, end - a.q_rows);
}
