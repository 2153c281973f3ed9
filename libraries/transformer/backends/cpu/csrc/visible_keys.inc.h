// Which keys the queries of attention see. Included by kernels.inc.h.

// A sequence of a call: one of the batches, or, where several follow each other in one, some of its positions.
struct Sequence {
  int64_t batch, first_query, queries, first_key, keys;

  Sequence(const AttentionForm& form, int64_t i)
      : batch(i), first_query(0), queries(form.queries), first_key(0), keys(form.keys) {
    if (form.query_starts == nullptr) return;
    batch = 0;
    first_query = form.query_starts[i], queries = form.query_starts[i + 1] - first_query;
    first_key = form.key_starts[i], keys = form.key_starts[i + 1] - first_key;
  }
  // Of lse: where those of a head's queries begin.
  int64_t row_of(const AttentionForm& form, int64_t head) const {
    return (batch * form.heads + head) * form.queries + first_query;
  }
};

// Which of its keys the queries of a sequence see: causal ones those up to their positions, which are counted from 0,
// as PyTorch does, unless they are given, and of these as many as a window has.
class Visible {
 public:
  Visible(const AttentionForm& form, int64_t i) : window_(form.window), is_causal_(form.is_causal), ids_(nullptr) {
    const Sequence sequence(form, i);
    keys_ = sequence.keys;
    if (form.position_ids != nullptr) {
      ids_ = form.position_ids + sequence.batch * form.position_stride + sequence.first_query;
    }
  }

  // The end of those that query i sees.
  int64_t of(int64_t i) const {
    if (!is_causal_) return keys_;
    const int64_t position = position_of(i);
    return position + 1 < keys_ ? position + 1 : keys_;
  }
  // Their first one; their end where there are none.
  int64_t from(int64_t i) const {
    if (window_ == 0) return 0;
    const int64_t first = position_of(i) + 1 - window_, end = of(i);
    return first < 0 ? 0 : first < end ? first : end;
  }
  // The last end of `count` queries from i on.
  int64_t most(int64_t i, int64_t count) const {
    if (ids_ == nullptr) return of(i + count - 1);
    int64_t most = 0;
    for (int64_t r = 0; r < count; ++r) most = of(i + r) > most ? of(i + r) : most;
    return most;
  }
  // The first key that one of them sees, or one before it: where a panel of keys begins.
  template <class C>
  int64_t begin(int64_t i, int64_t count) const {
    if (window_ == 0 || count == 0) return 0;
    int64_t least = from(i);
    for (int64_t r = 1; r < count && ids_ != nullptr; ++r) least = from(i + r) < least ? from(i + r) : least;
    return least / kPanel<C> * kPanel<C>;
  }
  // The last end of kTile queries from i on, in a block whose last end is `seen`. Given positions have no order.
  int64_t in_tile(int64_t i, int64_t seen) const {
    return is_causal_ && ids_ == nullptr && i + kTile < seen ? i + kTile : seen;
  }
  // The first query that sees key j.
  int64_t first(int64_t j) const { return is_causal_ && ids_ == nullptr ? j : 0; }

 private:
  int64_t position_of(int64_t i) const { return ids_ == nullptr ? i : ids_[i]; }

  int64_t keys_, window_;
  bool is_causal_;
  const int64_t* ids_;
};

// What is added to the scores of a head's queries, or says which of the keys they see; nothing without a mask.
template <class T>
class Mask {
 public:
  using C = ComputeType<T>;
  Mask(const AttentionForm& form, int64_t batch, int64_t head)
      : data_(form.mask), is_bool_(form.mask_is_bool), stride_(form.mask_strides[2]) {
    first_ = batch * form.mask_strides[0] + head * form.mask_strides[1];
  }

  explicit operator bool() const { return data_ != nullptr; }
  // Changes the scores of query i and `count` keys from j on: those that are hidden are -inf. Whether one is not.
  bool change(C* scores, int64_t i, int64_t j, int64_t count) const {
    const int64_t at_row = first_ + i * stride_ + j;
    if (is_bool_) {
      const uint8_t* const seen = static_cast<const uint8_t*>(data_) + at_row;
      return change(scores, count, [&](auto at) { return is_seen(seen, at) ? get(scores, at) : hidden(); });
    }
    const T* const added = static_cast<const T*>(data_) + at_row;
    return change(scores, count, [&](auto at) { return get(scores, at) + get(added, at); });
  }
  bool hides() const { return is_bool_ && data_ != nullptr; }
  // Values of query i and keys from j on, at a position from there; 0 where booleans hide the key.
  auto only_seen(int64_t i, int64_t j) const {
    const uint8_t* const seen = static_cast<const uint8_t*>(data_) + first_ + i * stride_ + j;
    return [seen](auto at, Vector<C> values) { return is_seen(seen, at) ? values : Vector<C>{}; };
  }

 private:
  static Vector<C> hidden() { return Vector<C>{} - static_cast<C>(__builtin_inf()); }
  template <class At>
  static auto is_seen(const uint8_t* seen, At at) {
    using Bytes __attribute__((vector_size(kLanes<C>))) = uint8_t;
    Bytes bytes = {};
    int64_t count = kLanes<C>;
    if constexpr (!kIs<At, Whole>) count = at.count;
    __builtin_memcpy(&bytes, seen + at.index, static_cast<std::size_t>(count));
    return __builtin_convertvector(bytes, decltype(hidden() == hidden())) != 0;
  }
  template <class Value>
  static bool change(C* scores, int64_t count, const Value& value) {
    return sum<C>(count, [&](auto at) {  // how many are not hidden; nan is not
             const Vector<C> changed = value(at);
             put(scores, at, changed);
             return changed == hidden() ? Vector<C>{} : Vector<C>{} + C(1);
           }) > 0;
  }

  const void* data_;
  bool is_bool_;
  int64_t first_, stride_;
};
