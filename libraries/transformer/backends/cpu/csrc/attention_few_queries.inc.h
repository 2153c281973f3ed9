// attention for few queries over many keys, as in generating text: scores, weights and sums of values in a pass each,
// over the threads. Included by kernels.inc.h.
//
// All queries that share a head of keys are the rows of one product, so that keys and values are read once. A panel of
// keys is packed, multiplied, and forgotten before it leaves the first cache; values are multiplied where they lie if
// their elements are what is computed in. Each number is computed by the operations of attention.inc.h in their order:
// a query has the same result, to the bit, among few queries as among many.

static_assert(kRowsOfScores % kTile == 0 && kColumnsOfBlock % kPanel<float> == 0);

// The rows of scores of a head of keys.
template <class C>
inline C* scores_of(const FewQueries& a, int64_t shared) {
  return static_cast<C*>(a.scores) + shared * padded(a.rows(), kRowsOfScores) * a.stride;
}

// Rows of a product that are there: `count` from the first on, of which fewer than kTile take no longer than they need.
template <int64_t vectors, class C>
inline void multiply_rows(int64_t count, Left<C> a, const C* panel, int64_t width, int64_t depth, C* out,
                          int64_t stride, bool adds) {
  if (count > 4) return multiply_tile<vectors>(a, panel, width, depth, out, stride, adds);
  if (count > 2) return multiply_tile<vectors, 4>(a, panel, width, depth, out, stride, adds);
  if (count > 1) return multiply_tile<vectors, 2>(a, panel, width, depth, out, stride, adds);
  multiply_tile<vectors, 1>(a, panel, width, depth, out, stride, adds);
}

// A unit is a block of keys of a head.
template <class T>
void few_query_scores(const FewQueryScores& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const AttentionForm& form = a.form;
  const int64_t d = form.length, columns = padded(d, kLanes<C>), heads = form.heads / form.group;
  const int64_t rows = padded(a.rows(), kRowsOfScores);
  const Buffer<C> queries(rows * columns), panel(d * kPanel<C>);
  const Panels<C> transposed{panel.data, d, kPanel<C>};
  int64_t copied = -1;  // the head whose queries are there
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t i = unit / a.key_blocks(), batch = i / heads, shared = i % heads;
    const Visible visible(form, batch);
    const int64_t unseen = visible.template begin<C>(0, form.queries), n = visible.most(0, form.queries);
    if (copied != i) {
      fill_zero(queries.data, rows * columns);
      for (int64_t g = 0; g < form.group; ++g) {
        const HeadRows<const T> q(a.q, batch, shared * form.group + g);
        copy_rows(q, 0, form.queries, form.queries, d, static_cast<C>(form.scale),
                  queries.data + g * form.queries * columns, columns);
      }
      copied = i;
    }
    const HeadRows<const T> k(a.k, batch, shared);
    C* const scores = scores_of<C>(a, i);
    const int64_t first = unit % a.key_blocks() * kKeysOfBlock,
                  last = first + kKeysOfBlock < n ? first + kKeysOfBlock : n;
    for (int64_t j = first > unseen ? first : unseen; j < last; j += kPanel<C>) {
      const int64_t count = n - j < kPanel<C> ? n - j : kPanel<C>;
      pack_transposed(HeadRows<const T>(k.row(j), k.stride), 0, count, d, transposed);
      for (int64_t r = 0; r < rows; r += kTile) {
        multiply_rows<2>(a.rows() - r, Left<C>{queries.data + r * columns, columns, 1}, panel.data, kPanel<C>, d,
                         scores + r * a.stride + j, a.stride, false);
      }
    }
  }
}

// A unit is a query of a head. The factor of its sums follows its weights.
template <class T>
void few_query_weights(const FewQueryWeights& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const AttentionForm& form = a.form;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t i = unit % form.queries, batch = unit / (form.heads * form.queries);
    const Visible visible(form, batch);
    const Mask<T> mask(form, batch, unit / form.queries % form.heads);
    const int64_t first = visible.from(i), own = visible.of(i);
    const int64_t unseen = visible.template begin<C>(0, form.queries);
    C* const row = scores_of<C>(a, unit / a.rows()) + unit % a.rows() * a.stride;
    C* const lse = a.lse == nullptr ? nullptr : static_cast<C*>(a.lse) + unit;
    row[a.stride - 1] = to_weights(row + first, mask, i, first, own - first, lse);
    fill_zero(row + unseen, first - unseen);
    fill_zero(row + own, visible.most(0, form.queries) - own);
  }
}

// A unit is a block of columns of a head.
template <class T>
void few_query_sums(const FewQuerySums& a, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  constexpr int64_t kDepth = 64;  // values that stay in the first cache
  const AttentionForm& form = a.form;
  const int64_t d = form.length, columns = padded(d, kLanes<C>), heads = form.heads / form.group;
  const int64_t rows = padded(a.rows(), kRowsOfScores), blocks = a.column_blocks();
  const Buffer<C> sums(rows * columns), block(kDepth * columns);
  for (int64_t unit = begin; unit < end;) {
    const int64_t i = unit / blocks, batch = i / heads, shared = i % heads;
    const Visible visible(form, batch);
    const int64_t unseen = visible.template begin<C>(0, form.queries), n = visible.most(0, form.queries);
    const int64_t here = blocks - unit % blocks < end - unit ? blocks - unit % blocks : end - unit;
    const int64_t from = unit % blocks * kColumnsOfBlock, width_here = here * kColumnsOfBlock;
    const int64_t to = from + width_here < d ? from + width_here : d;
    const int64_t width = padded(to - from, kLanes<C>);
    const HeadRows<const T> v(a.v, batch, shared);
    const C* const weights = scores_of<C>(a, i);
    for (int64_t j = unseen; j < n; j += kDepth) {
      const int64_t depth = n - j < kDepth ? n - j : kDepth;
      const auto add = [&](const C* values, int64_t stride) {
        for (int64_t column = 0; column < width; column += kPanel<C>) {
          for (int64_t r = 0; r < rows; r += kTile) {
            const Left<C> left{weights + r * a.stride + j, a.stride, 1};
            C* const out = sums.data + r * columns + column;
            column + kLanes<C> < width
                ? multiply_rows<2>(a.rows() - r, left, values + column, stride, depth, out, columns, j > unseen)
                : multiply_rows<1>(a.rows() - r, left, values + column, stride, depth, out, columns, j > unseen);
          }
        }
      };
      if constexpr (kIs<T, C>) {
        if (from + width <= d) {
          add(v.row(j) + from, v.stride);
          continue;
        }
      }
      for (int64_t row = 0; row < depth; ++row) {
        for (int64_t k = 0; k < width; k += kLanes<C>) {
          store_vector(block.data + row * width + k, get_padded(v.row(j + row), from + k, d));
        }
      }
      add(block.data, width);
    }
    for (int64_t r = 0; r < a.rows(); ++r) {
      const HeadRows<T> y(a.y, batch, shared * form.group + r / form.queries);
      T* const row = y.row(r % form.queries) + from;
      const C factor = weights[r * a.stride + a.stride - 1];
      if (factor == 0) fill_zero(sums.data + r * columns, columns);  // without a key there is no sum
      for_vectors<C>(to - from, [&](auto at) { put(row, at, get(sums.data + r * columns, at) * factor); });
    }
    unit += here;
  }
}
