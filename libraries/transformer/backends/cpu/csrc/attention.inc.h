// softmax(scale * q k^T) v, a head at a time and 32 of its queries at a time. Included by kernels.inc.h.
//
//     keys, transposed: panels of two registers' columns          values: panels as well
//     +------+------+--                                            +------+--
//     |panel |panel |    d rows: a product of q's elements         |panel |    n rows: a product of the weights
//     |  0   |  1   |    and these is a row of scores              |  0   |    and these is a row of results
//     +------+------+--                                            +------+--

constexpr int64_t kQueries = 32;  // at a time: their scores for 2000 keys are in the second-level cache

// What is needed of kTile rows of a product: columns from `begin`, where a panel begins, up to `columns`, and of its
// depth what lies between `first` and `last`. In a causal head all else is zero, or not read.
struct Part {
  int64_t first, last, columns, begin = 0;
};

// out = a b, or out += a b: of `rows`, a multiple of kTile, part(i) for those from i on, which for the last rows has
// the most columns and the largest `last`, for the first ones the smallest `first`; all have the same, if nothing is
// added to, and one `begin`.
template <class C, class PartOf>
inline void multiply(Left<C> a, int64_t rows, Panels<C> b, C* out, int64_t stride, bool adds, const PartOf& part) {
  constexpr int64_t kDepth = 256;  // rows of a panel that stay in the first cache
  const Part most = part(rows - kTile);
  for (int64_t from = part(0).first; from < most.last; from += kDepth) {
    for (int64_t column = most.begin; column < most.columns; column += kPanel<C>) {
      const int64_t width = b.width(column);
      for (int64_t i = 0; i < rows; i += kTile) {
        const Part needed = part(i);
        const int64_t first = needed.first > from ? needed.first : from;
        const int64_t last = needed.last < from + kDepth ? needed.last : from + kDepth;
        if (first >= last || column >= needed.columns) continue;
        const Left<C> left{a.data + i * a.row + first * a.column, a.row, a.column};
        const C* panel = b.at(first, column);
        C* to = out + i * stride + column;
        width == kPanel<C>&& column + kLanes<C> < needed.columns
            ? multiply_tile<2>(left, panel, kPanel<C>, last - first, to, stride, adds)
            : multiply_tile<1>(left, panel, width, last - first, to, stride, adds);
      }
    }
    adds = true;
  }
}

// Asks for a row that is read or written soon, where there is one.
template <class T>
inline void fetch(HeadRows<T> x, int64_t i, int64_t rows, int64_t length) {
  if (i < rows) prefetch_row(x.row(i), length);
}

// `rows` rows, of which `count` are there, times a factor.
template <class T, class C>
inline void copy_rows(HeadRows<const T> x, int64_t from, int64_t rows, int64_t count, int64_t length, C factor, C* to,
                      int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < stride; k += kLanes<C>) {
      store_vector(to + i * stride + k, i < count ? get_padded(x.row(from + i), k, length) * factor : Vector<C>{});
    }
  }
}
// Rows of C, padded as the panels are.
template <class C>
inline void pack_block(const C* x, Panels<C> to) {
  for (int64_t i = 0; i < to.depth; ++i) {
    for (int64_t k = 0; k < to.columns; k += kLanes<C>) {
      store_vector(to.at(i, k), load_vector<Vector<C>>(x + i * to.columns + k));
    }
  }
}
// Turns rows of C by the angles of their positions, or back; not at all without tables.
template <class T>
struct Rotation {
  using C = ComputeType<T>;
  const T *cos, *sin;
  int64_t stride, half;

  Rotation(const AttentionForm& form, int64_t batch)
      : cos(static_cast<const T*>(form.cos)),
        sin(static_cast<const T*>(form.sin)),
        stride(form.angle_stride),
        half(form.length / 2) {
    if (cos != nullptr) cos += batch * form.batch_stride, sin += batch * form.batch_stride;
  }
  explicit operator bool() const { return cos != nullptr; }
  void turn(C* rows, int64_t row_stride, int64_t first, int64_t count, C sign) const {
    if (cos == nullptr) return;
    for (int64_t i = 0; i < count; ++i) {
      C* const row = rows + i * row_stride;
      const int64_t angle = (first + i) * stride;
      turn_halves(row, cos + angle, sin + angle, sign, half, row);
    }
  }
};

// A head's keys for products, from `begin` on: transposed, and, if `rows` is not null, as rows. Turned keys are in
// `turned` in between.
template <class T, class C>
inline void pack_keys(HeadRows<const T> k, const Rotation<T>& rotation, int64_t begin, int64_t end, int64_t length,
                      C* turned, int64_t stride, Panels<C> transposed, const std::type_identity_t<Panels<C>>* rows) {
  const auto pack_all = [&](auto x) {
    pack_transposed(x, begin, end, length, transposed);
    if (rows != nullptr) pack(x, begin, end, length, *rows);
  };
  if (!rotation) return pack_all(k);
  copy_rows(k, 0, end, end, length, C(1), turned, stride);
  rotation.turn(turned, stride, 0, end, C(1));
  pack_all(HeadRows<const C>(turned, stride));
}

// The logarithm of the sum of exp(score) where the largest score is infinite, of which the difference from itself is
// nan: as large as that, unless a score is nan, which the largest one does not tell.
template <class C>
inline C infinite_log_sum(const C* row, int64_t count, C top) {
  return top + sum<C>(count, [&](auto at) {
           const Vector<C> score = get(row, at);
           return score < 0 ? Vector<C>{} : score;
         });
}

// Makes scores to exp(score - the largest), and gives the factor that makes these to weights.
template <class C>
inline C to_weights(C* row, int64_t count, C* lse) {
  const C top = maximum<C>(count, -static_cast<C>(__builtin_inf()), [&](auto at) { return get(row, at); });
  const bool is_infinite = __builtin_isinf(top);
  if (lse != nullptr && is_infinite) *lse = infinite_log_sum(row, count, top);
  const C total = sum<C>(count, [&](auto at) {
    const auto value = exp_of_negative(get(row, at) - top);
    put(row, at, value);
    return value;
  });
  if (lse != nullptr && !is_infinite) *lse = top + static_cast<C>(__builtin_log(static_cast<double>(total)));
  return C(1) / total;
}

// The same of scores that a mask may change. A query that sees no key has weights of zero, no largest score, and a
// factor of zero.
template <class T, class C>
inline C to_weights(C* row, const Mask<T>& mask, int64_t i, int64_t first, int64_t count, C* lse) {
  if (count > 0 && (!mask || mask.change(row, i, first, count))) return to_weights(row, count, lse);
  fill_zero(row, count);
  if (lse != nullptr) *lse = -static_cast<C>(__builtin_inf());
  return 0;
}

template <class T>
void attention(const Attention& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const AttentionForm& form = a.form;
  const int64_t n = form.keys, d = form.length, columns = padded(d, kLanes<C>), width = padded(n, kPanel<C>);
  const Buffer<C> keys_memory(d * width), values_memory(n * columns), block(kQueries * columns);
  const int64_t stride = width + kLanes<C>;  // rows that were a power of two apart would share a few lines of the cache
  const Buffer<C> scores(kQueries * stride), sums(kQueries * columns);
  const Panels<C> keys{keys_memory.data, d, width}, values{values_memory.data, n, columns};
  const Buffer<C> turned(form.cos == nullptr ? 0 : n * columns);
  int64_t packed = -1;  // the head whose keys and values are there
  for (int64_t i = begin; i < end; ++i) {
    const int64_t head = i % form.heads, shared = head / form.group;
    const Sequence sequence(form, i / form.heads);
    const int64_t batch = sequence.batch, queries = sequence.queries;
    const Visible visible(form, i / form.heads);
    const Mask<T> mask(form, batch, head);
    const HeadRows<const T> q(a.q, batch, head, sequence.first_query);
    const HeadRows<T> y(a.y, batch, head, sequence.first_query);
    const Rotation<T> rotation(form, batch);
    C* const lse = a.lse == nullptr ? nullptr : static_cast<C*>(a.lse) + sequence.row_of(form, head);
    if (packed != i / form.group) {
      const int64_t unread = visible.template begin<C>(0, queries), read = visible.most(0, queries);
      const HeadRows<const T> k(a.k, batch, shared, sequence.first_key), v(a.v, batch, shared, sequence.first_key);
      pack_keys(k, rotation, unread, read, d, turned.data, columns, keys, nullptr);
      pack(v, unread, read, d, values);
      packed = i / form.group;
    }
    const int64_t next = i + 1 < end ? i + 1 : i, next_shared = next % form.heads / form.group;
    const Sequence next_sequence(form, next / form.heads);
    const HeadRows<const T> next_k(a.k, next_sequence.batch, next_shared, next_sequence.first_key);
    const HeadRows<const T> next_v(a.v, next_sequence.batch, next_shared, next_sequence.first_key);
    for (int64_t from = 0; from < queries; from += kQueries) {
      const int64_t count = queries - from < kQueries ? queries - from : kQueries;
      const int64_t seen = visible.most(from, count), unseen = visible.template begin<C>(from, count);
      copy_rows(q, from, kQueries, count, d, static_cast<C>(form.scale), block.data, columns);
      rotation.turn(block.data, columns, from, count, C(1));
      const auto of_scores = [&](int64_t r) { return Part{0, d, visible.in_tile(from + r, seen), unseen}; };
      multiply({block.data, columns, 1}, kQueries, keys, scores.data, stride, false, of_scores);
      C factors[kQueries];
      for (int64_t r = 0; r < count; ++r) {
        C* const row = scores.data + r * stride;
        fetch(q, from + kQueries + r, queries, d);
        fetch(y, from + r, queries, d);
        fetch(next_k, from + r, next_sequence.keys, d);
        fetch(next_v, from + r, next_sequence.keys, d);
        const int64_t first = visible.from(from + r), own = visible.of(from + r);
        C* const own_lse = lse == nullptr ? nullptr : lse + from + r;
        factors[r] = to_weights(row + first, mask, from + r, first, own - first, own_lse);
        fill_zero(row + unseen, first - unseen);
        fill_zero(row + own, seen - own);
      }
      const auto of_sums = [&](int64_t r) { return Part{unseen, visible.in_tile(from + r, seen), columns}; };
      multiply({scores.data, stride, 1}, kQueries, values, sums.data, columns, false, of_sums);
      for (int64_t r = 0; r < count; ++r) {
        T* const to = y.row(from + r);
        if (factors[r] == 0) fill_zero(sums.data + r * columns, d);  // without a key there is no sum
        for_vectors<C>(d, [&](auto at) { put(to, at, get(sums.data + r * columns, at) * factors[r]); });
      }
    }
  }
}

// Makes scores to p = softmax(scores), and dp to ds = p * (dp - sum(p * dp)). The forward pass has kept the logarithm
// of the sum of exp(scores) and the result y, of which sum(p * dp) is sum(grad * y), but both are rounded: where one
// key has nearly all of the weight, exp(score - lse) is 1 but for what a score of a thousand has lost in lse, 1e-4, and
// dp - sum(p * dp) is little but what y has lost. `seen` makes values of hidden keys 0: nan of theirs is none of the
// query's.
template <class C, class Seen>
inline void slopes_of(C* p, C* ds, int64_t count, const Seen& seen) {
  const C top = maximum<C>(count, -static_cast<C>(__builtin_inf()), [&](auto at) { return get(p, at); });
  const C total = sum<C>(count, [&](auto at) {
    const auto weight = seen(at, exp_of_negative(get(p, at) - top));
    put(p, at, weight);
    return weight;
  });
  const C mean = sum<C>(count, [&](auto at) { return get(p, at) * seen(at, get(ds, at)); }) / total;
  const C factor = C(1) / total;
  for_vectors<C>(count, [&](auto at) {
    const auto weight = seen(at, get(p, at) * factor);  // which is nan of an infinite score
    put(p, at, weight);
    put(ds, at, seen(at, weight * (get(ds, at) - mean)));
  });
}

// With dp = grad v^T, and p and ds as above: dv = p^T grad, dq = scale * ds k, dk = scale * ds^T q. Keys and values
// that several heads share have their sums.
template <class T>
void attention_backward(const AttentionBackward& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const AttentionForm& form = a.form;
  const int64_t d = form.length, columns = padded(d, kLanes<C>), width = padded(form.keys, kPanel<C>);
  const Buffer<C> keys_memory(form.keys * columns), transposed_keys(d * width), transposed_values(d * width);
  const Buffer<C> block(kQueries * columns), grads(kQueries * columns), sums(kQueries * columns);
  const Buffer<C> block_memory(kQueries * columns), grads_memory(kQueries * columns);
  const int64_t stride = width + kLanes<C>;  // rows that were a power of two apart would share a few lines of the cache
  const Buffer<C> weights(kQueries * stride), slopes(kQueries * stride), dk(width * columns), dv(width * columns);
  const Panels<C> keys{keys_memory.data, form.keys, columns}, keys_t{transposed_keys.data, d, width};
  const Panels<C> values_t{transposed_values.data, d, width};
  const Panels<C> block_panels{block_memory.data, kQueries, columns}, grad_panels{grads_memory.data, kQueries, columns};
  const C scale = static_cast<C>(form.scale);
  for (int64_t i = begin; i < end; ++i) {  // a head of keys and values
    const int64_t heads = form.heads / form.group, shared = i % heads;
    const Sequence sequence(form, i / heads);
    const int64_t batch = sequence.batch, queries = sequence.queries, n = sequence.keys;
    const Visible visible(form, i / heads);
    const int64_t unread = visible.template begin<C>(0, queries), read = visible.most(0, queries);
    const HeadRows<const T> k(a.k, batch, shared, sequence.first_key), v(a.v, batch, shared, sequence.first_key);
    const HeadRows<T> dk_rows(a.dk, batch, shared, sequence.first_key);
    const HeadRows<T> dv_rows(a.dv, batch, shared, sequence.first_key);
    const int64_t next = i + 1 < end ? i + 1 : i;
    const Sequence next_sequence(form, next / heads);
    const HeadRows<const T> next_k(a.k, next_sequence.batch, next % heads, next_sequence.first_key);
    const HeadRows<const T> next_v(a.v, next_sequence.batch, next % heads, next_sequence.first_key);
    const Rotation<T> rotation(form, batch);
    pack_keys(k, rotation, unread, read, d, dk.data, columns, keys_t, &keys);
    pack_transposed(v, unread, read, d, values_t);
    fill_zero(dk.data, padded(n, kPanel<C>) * columns);
    fill_zero(dv.data, padded(n, kPanel<C>) * columns);
    for (int64_t head = shared * form.group; head < (shared + 1) * form.group; ++head) {
      const HeadRows<const T> q(a.q, batch, head, sequence.first_query);
      const HeadRows<const T> grad(a.grad, batch, head, sequence.first_query);
      const HeadRows<T> dq(a.dq, batch, head, sequence.first_query);
      const Mask<T> mask(form, batch, head);
      for (int64_t from = 0; from < queries; from += kQueries) {
        const int64_t count = queries - from < kQueries ? queries - from : kQueries;
        const int64_t seen = visible.most(from, count), seen_width = padded(seen, kPanel<C>);
        const int64_t unseen = visible.template begin<C>(from, count);
        copy_rows(q, from, kQueries, count, d, scale, block.data, columns);
        rotation.turn(block.data, columns, from, count, C(1));
        copy_rows(grad, from, kQueries, count, d, C(1), grads.data, columns);
        pack_block(block.data, block_panels);
        pack_block(grads.data, grad_panels);
        const auto of_scores = [&](int64_t r) { return Part{0, d, visible.in_tile(from + r, seen), unseen}; };
        multiply({block.data, columns, 1}, kQueries, keys_t, weights.data, stride, false, of_scores);
        multiply({grads.data, columns, 1}, kQueries, values_t, slopes.data, stride, false, of_scores);
        for (int64_t r = 0; r < kQueries; ++r) {
          C* const p = weights.data + r * stride;
          C* const ds = slopes.data + r * stride;
          fetch(q, from + kQueries + r, queries, d);
          fetch(grad, from + kQueries + r, queries, d);
          fetch(dq, from + r, queries, d);
          fetch(dk_rows, from + r, n, d);
          fetch(dv_rows, from + r, n, d);
          fetch(next_k, from + r, next_sequence.keys, d);
          fetch(next_v, from + r, next_sequence.keys, d);
          const int64_t first = r < count ? visible.from(from + r) : unseen;
          int64_t own = r < count ? visible.of(from + r) : unseen;
          if (own > first && mask && !mask.change(p + first, from + r, first, own - first)) own = first;
          if (own > first && mask.hides()) {
            slopes_of(p + first, ds + first, own - first, mask.only_seen(from + r, first));
          } else if (own > first) {
            slopes_of(p + first, ds + first, own - first, [](auto, auto values) { return values; });
          }
          for (C* const row : {p, ds}) {
            fill_zero(row + unseen, first - unseen);
            fill_zero(row + own, seen_width - own);
          }
        }
        const auto of_keys = [&](int64_t j) {
          const int64_t first = visible.first(unseen + j);
          return Part{first > from ? first - from : 0, kQueries, columns};
        };
        const int64_t rows = padded(seen - unseen, kTile), first_row = unseen * columns;
        multiply({weights.data + unseen, 1, stride}, rows, grad_panels, dv.data + first_row, columns, true, of_keys);
        multiply({slopes.data + unseen, 1, stride}, rows, block_panels, dk.data + first_row, columns, true, of_keys);
        const auto of_sums = [&](int64_t r) { return Part{unseen, visible.in_tile(from + r, seen), columns}; };
        if (unseen > 0 || seen == 0) fill_zero(sums.data, kQueries * columns);  // queries that see no key have no sum
        multiply({slopes.data, stride, 1}, kQueries, keys, sums.data, columns, false, of_sums);
        rotation.turn(sums.data, columns, from, count, C(-1));
        for (int64_t r = 0; r < count; ++r) {
          T* const to = dq.row(from + r);
          for_vectors<C>(d, [&](auto at) { put(to, at, get(sums.data + r * columns, at) * scale); });
        }
      }
    }
    rotation.turn(dk.data, columns, 0, n, C(-1));
    for (int64_t j = 0; j < n; ++j) {
      T* const to_k = dk_rows.row(j);
      T* const to_v = dv_rows.row(j);
      for_vectors<C>(d, [&](auto at) {
        put(to_k, at, get(dk.data + j * columns, at));
        put(to_v, at, get(dv.data + j * columns, at));
      });
    }
  }
}
