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
  // How many rows from here on follow each other in a result, with positions or heads that do so as well.
  int64_t alike() const { return heads_first_ ? last() - position : heads_ - head; }
  // At most so many further.
  void next(int64_t rows = 1) {
    if (heads_first_) position += rows;
    if (heads_first_ && position < last()) return;
    head += heads_first_ ? 1 : rows;
    if (head == heads_) {
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

// Where a row of x is, and which row of the tables is for it.
template <class T>
inline const T* elements_of(const Rope& a, const RopeRow& row) {
  return static_cast<const T*>(a.x) + row.batch * a.strides[0] + row.head * a.strides[1] + row.position * a.strides[2];
}
inline int64_t angle_of(const Rope& a, const RopeRow& row) {
  const bool has_ids = a.position_ids != nullptr;
  const int64_t batch_step = (has_ids ? a.position_batches : a.angle_batches) > 1 ? a.positions : 0;
  const int64_t angle = row.batch * batch_step + row.position;
  return has_ids ? a.position_ids[angle] : angle;
}

// Heads of at most so many elements are turned side by side, which fit into a vector.
constexpr int64_t kShortRope = 8;

// The part of a table for rows of x that are alike.
template <class T>
inline void read_angles(const Rope& a, const void* table, RopeRow row, int64_t rows, Columns<T>& columns) {
  const T* from = static_cast<const T*>(table);
  const int64_t half = a.length / 2, stride = a.angle_stride;
  if (!a.heads_first) return columns.read(from + angle_of(a, row) * stride, 0, rows, half);
  if (a.position_ids == nullptr) return columns.read(from + angle_of(a, row) * stride, stride, rows, stride);
  T memory[kLanes<ComputeType<T>> * kShortRope / 2];
  for (int64_t r = 0; r < rows; ++r, ++row.position) {
    for (int64_t k = 0; k < half; ++k) memory[r * half + k] = from[angle_of(a, row) * stride + k];
  }
  columns.read(memory, half, rows, half);
}

template <class T>
void turn_short_rows(const Rope& a, int64_t begin, int64_t end) {
  const int64_t n = a.length, half = n / 2, stride = a.strides[a.heads_first ? 2 : 1];
  Columns<T> x, cos, sin;
  RopeRow row(a, begin);
  for (int64_t i = begin, rows; i < end; i += rows, row.next(rows)) {
    rows = row.alike() < end - i ? row.alike() : end - i;
    if (rows > kLanes<ComputeType<T>>) rows = kLanes<ComputeType<T>>;
    x.read(elements_of<T>(a, row), stride, rows, n);
    read_angles(a, a.cos, row, rows, cos);
    read_angles(a, a.sin, row, rows, sin);
    for (int64_t k = 0; k < half; ++k) {
      auto& first = x.values[a.interleaved ? 2 * k : k];
      auto& second = x.values[a.interleaved ? 2 * k + 1 : k + half];
      const auto u = first, v = second, c = cos.values[k], s = sin.values[k];
      first = u * c - v * s;
      second = v * c + u * s;
    }
    x.write(static_cast<T*>(a.y) + row.index() * n, n, rows, n);
  }
}

// Pairs are halves as in turn_halves() or, interleaved, 2 k and 2 k + 1.
template <class T>
void turn_rows(const Rope& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const int64_t half = a.length / 2;
  if (0 < half && a.length <= kShortRope && a.length <= kLanes<C>) return turn_short_rows<T>(a, begin, end);
  constexpr int64_t kAhead = 16;  // rows
  RopeRow row(a, begin), ahead(a, begin + kAhead);
  for (int64_t i = begin; i < end; ++i, row.next(), ahead.next()) {
    if (i + kAhead < end) prefetch_row(elements_of<T>(a, ahead), a.length);
    const int64_t angle = angle_of(a, row);
    const T* x = elements_of<T>(a, row);
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
