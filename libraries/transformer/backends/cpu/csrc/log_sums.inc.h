// Logarithms of sums of exponentials, of log_softmax and cross entropy. Included by kernels.inc.h.

// Of as many rows as a vector has lanes, in a lane each: the largest element, and the sum of exp(element - largest) but
// for one that is the largest. log1p() of that sum, and the largest, are the logarithm of the sum of all. Beside the 1
// of the largest, the others would lose their digits where it has nearly all of the weight.
template <class C>
struct LogSums {
  Vector<C> top, beside;
};

// value(at) is an element of each row.
template <class C, class Value>
inline LogSums<C> log_sums(Side n, const Value& value) {
  const Vector<C> top = maximum<C>(n, -static_cast<C>(__builtin_inf()), value);
  const auto [others, times] = sums<C>(n, [&](auto at) {
    const Vector<C> below = value(at) - top, zero{};
    const auto is_top = below == 0;
    return Two<Vector<C>>{is_top ? zero : exp_of_negative(below), is_top ? zero + C(1) : zero};
  });
  return {top, others + (times - 1)};
}

// How many rows of n elements, which are read more than once, the first cache holds; at most one for each lane.
template <class C>
inline int64_t rows_at_a_time(int64_t n) {
  const int64_t fitting = 4096 / (n + 1);
  return fitting > kLanes<C> ? kLanes<C> : fitting > 1 ? fitting : 1;
}
// value(r, at) is an element of row r, and as it counts changed(value), which keeps the order of elements. Rows that
// are skipped have zeros.
template <class C, class Value, class Changed, class Skips>
inline LogSums<C> log_sums(int64_t rows, int64_t n, const Value& value, const Changed& changed, const Skips& skips) {
  const auto larger = [](Vector<C> a, Vector<C> b) { return a > b ? a : b; };
  const auto add = [](Vector<C> a, Vector<C> b) { return a + b; };
  Vector<C> lanes[kLanes<C>];
  C tops[kLanes<C>], totals[kLanes<C>];
  for (int64_t r = rows; r < kLanes<C>; ++r) lanes[r] = Vector<C>{};
  for (int64_t r = 0; r < rows; ++r) {
    const auto value_of = [&](auto at) { return value(r, at); };
    lanes[r] = skips(r) ? Vector<C>{} : reduce_to_lanes<C>(n, -static_cast<C>(__builtin_inf()), value_of, larger);
  }
  const Vector<C> top = changed(combine_lanes_of_each(lanes, rows, larger));
  put(tops, Whole{0}, top);
  for (int64_t r = 0; r < rows; ++r) {
    const auto exp_of = [&](auto at) { return exp_of_negative(changed(value(r, at)) - tops[r]); };
    lanes[r] = skips(r) ? Vector<C>{} : reduce_to_lanes<C>(n, C(0), exp_of, add);
  }
  put(totals, Whole{0}, combine_lanes_of_each(lanes, rows, add) - 1);
  for (int64_t r = 0; r < rows; ++r) {
    if (!(totals[r] < 1) || skips(r)) continue;
    totals[r] = sum<C>(n, [&](auto at) {  // no other is as large
      const Vector<C> below = changed(value(r, at)) - tops[r];
      return below < 0 ? exp_of_negative(below) : Vector<C>{};
    });
  }
  return {top, get(totals, Whole{0})};
}
