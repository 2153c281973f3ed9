// Rows of no more elements than a vector has lanes, side by side: a lane has a row, and a vector the elements at one
// position of all of them. Each of them alone would be a vector that is nearly empty, and reductions over its lanes.
//
// A function of a row, a result and a count is written once, with `auto`, for rows and for columns: of columns, get()
// and put() take the positions that sum(), maximum() and for_vectors() give, and reductions give a number for each
// lane.
//
//     const auto normalise = [](const auto* x, auto* y, auto n) {
//       const auto total = sum<C>(n, [&](auto at) { return get(x, at); });
//       for_vectors<C>(n, [&](auto at) { put(y, at, get(x, at) / total); });
//     };
//     for_columns<T>(begin, end, [&](int64_t i, int64_t rows, auto& columns) {   // n <= kLanes<C>
//       columns.read(x + i * stride, stride, rows, n);
//       normalise(&columns, &columns, Side{n});
//       columns.write(y + i * stride, stride, rows, n);
//     });
//     for (int64_t i = begin; i < end; ++i) normalise(x + i * stride, y + i * stride, n);   // of longer ones
//
// Numbers are added up in the order in which sum() adds the lanes of one vector: results have the same bits.
#pragma once

#include "opwheel/cpu/vectorized_rows.h"

namespace opwheel::cpu::OPWHEEL_ISA {
namespace {

// How many elements the rows have that are side by side.
struct Side {
  int64_t count;
};
// Where to read and write: the elements at one position of all rows.
struct Column {
  int64_t index;
};

// As many rows as a vector has lanes, of `length` elements, a power of two, in the first lanes of a vector each, to
// `length` vectors in which they follow each other: those of `width` elements become half as many of twice as many.
template <int64_t length, int64_t width = length, class V, std::size_t count>
inline void bring_together(V (&rows)[count]) {
  constexpr int64_t kCount = count;
  if constexpr (width < kCount) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kCount * length / width / 2; ++i) {
      rows[i] = shuffled(rows[2 * i], rows[2 * i + 1], [](int64_t k) { return k < width ? k : kCount + k - width; });
    }
    bring_together<length, 2 * width>(rows);
  }
}
// The opposite of bring_together().
template <int64_t length, int64_t width = length, class V, std::size_t count>
inline void take_apart(V (&rows)[count]) {
  constexpr int64_t kCount = count;
  if constexpr (width < kCount) {
    take_apart<length, 2 * width>(rows);
#pragma GCC unroll 8
    for (int64_t i = kCount * length / width / 2 - 1; i >= 0; --i) {
      rows[2 * i + 1] = turned<width>(rows[i]);
      rows[2 * i] = rows[i];
    }
  }
}

// Vectors in which such rows follow each other, to those of each position. A step puts elements of even positions
// before the others.
template <int64_t length, class V, std::size_t count>
inline void rows_to_positions(V (&values)[count]) {
#pragma GCC unroll 4
  for (int64_t step = 1; step < length; step *= 2) {
    V next[length];
#pragma GCC unroll 8
    for (int64_t i = 0; i < length / 2; ++i) {
      next[i] = shuffled(values[2 * i], values[2 * i + 1], [](int64_t k) { return 2 * k; });
      next[i + length / 2] = shuffled(values[2 * i], values[2 * i + 1], [](int64_t k) { return 2 * k + 1; });
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < length; ++i) values[i] = next[i];
  }
}
// The opposite of rows_to_positions().
template <int64_t length, class V, std::size_t count>
inline void positions_to_rows(V (&values)[count]) {
  constexpr int64_t kCount = count;
#pragma GCC unroll 4
  for (int64_t step = 1; step < length; step *= 2) {
    V next[length];
#pragma GCC unroll 8
    for (int64_t i = 0; i < length / 2; ++i) {
      const V first = values[i], second = values[i + length / 2];
      next[2 * i] = shuffled(first, second, [](int64_t k) { return k / 2 + k % 2 * kCount; });
      next[2 * i + 1] = shuffled(first, second, [](int64_t k) { return k / 2 + k % 2 * kCount + kCount / 2; });
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < length; ++i) values[i] = next[i];
  }
}

// A vector's number of rows of `count` elements each, of which `rows` are there; the others are zero.
template <class T>
struct Columns {
  using C = ComputeType<T>;
  Vector<C> values[kLanes<C>];

  void read(const T* x, int64_t stride, int64_t rows, int64_t count) { read_as<1>(x, stride, rows, count); }
  // What the vectors have is no longer there.
  void write(T* y, int64_t stride, int64_t rows, int64_t count) { write_as<1>(y, stride, rows, count); }

 private:
  // As rows of `length` elements, a power of two: the next one from `count` on.
  template <int64_t length>
  void read_as(const T* x, int64_t stride, int64_t rows, int64_t count) {
    if constexpr (length < kLanes<C>) {
      if (count > length) return read_as<2 * length>(x, stride, rows, count);
    }
    if (stride == length && count == length && rows == kLanes<C>) {
      for (int64_t k = 0; k < length; ++k) values[k] = get(x + k * kLanes<C>, Whole{0});
    } else {
      for (int64_t r = 0; r < kLanes<C>; ++r) {
        if (r >= rows) {
          values[r] = Vector<C>{};
        } else if (length == kLanes<C> && count == length) {
          values[r] = get(x + r * stride, Whole{0});
        } else {
          values[r] = get(x + r * stride, Some{0, count});
        }
      }
      bring_together<length>(values);
    }
    rows_to_positions<length>(values);
  }
  template <int64_t length>
  void write_as(T* y, int64_t stride, int64_t rows, int64_t count) {
    if constexpr (length < kLanes<C>) {
      if (count > length) return write_as<2 * length>(y, stride, rows, count);
    }
    positions_to_rows<length>(values);
    if (stride == length && count == length && rows == kLanes<C>) {
      for (int64_t k = 0; k < length; ++k) put(y + k * kLanes<C>, Whole{0}, values[k]);
      return;
    }
    take_apart<length>(values);
    for (int64_t r = 0; r < rows; ++r) {
      if (length == kLanes<C> && count == length) {
        put(y + r * stride, Whole{0}, values[r]);
      } else {
        put(y + r * stride, Some{0, count}, values[r]);
      }
    }
  }
};

template <class T>
inline Vector<ComputeType<T>> get(const Columns<T>* columns, Column at) {
  return columns->values[at.index];
}
// A number for each position, the same for all rows.
template <class T>
inline Vector<ComputeType<T>> get(const T* row, Column at) {
  return Vector<ComputeType<T>>{} + static_cast<ComputeType<T>>(widen(row[at.index]));
}
template <class T>
inline void put(Columns<T>* columns, Column at, Vector<ComputeType<T>> values, bool = false) {
  columns->values[at.index] = values;
}
template <class T>
inline void prefetch(const T*, Column) {}

template <class C, class Body>
__attribute__((always_inline)) inline void for_vectors(Side n, const Body& body) {
  for (int64_t k = 0; k < n.count; ++k) body(Column{k});
}
// Positions are combined as the lanes of a vector are: those half a vector apart, and so on. Of all that a vector has,
// here those that are `apart` from `first` on, they are in registers.
template <int64_t count, int64_t first = 0, int64_t apart = 1, class Value, class Combine>
__attribute__((always_inline)) inline auto combine_all(const Value& value, const Combine& combine) {
  if constexpr (apart == count) {
    return value(Column{first});
  } else {
    const auto even = combine_all<count, first, 2 * apart>(value, combine);
    return combine(even, combine_all<count, first + apart, 2 * apart>(value, combine));
  }
}
template <class C, class Values, class Value, class Combine>
__attribute__((always_inline)) inline Values combine_positions(Side n, Values rest, const Value& value,
                                                               const Combine& combine) {
  if (n.count == kLanes<C>) return combine_all<kLanes<C>>(value, combine);
  Values partial[kLanes<C>];
  int64_t width = 1;
  while (width < n.count) width *= 2;
  for (int64_t k = 0; k < width; ++k) partial[k] = k < n.count ? value(Column{k}) : rest;
  for (width /= 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) partial[k] = combine(partial[k], partial[k + width]);
  }
  return partial[0];
}
template <class C, class Value, class Combine>
__attribute__((always_inline)) inline Vector<C> reduce(Side n, C start, const Value& value, const Combine& combine) {
  return combine_positions<C>(n, Vector<C>{} + start, value, combine);
}
template <class C, class Value>
__attribute__((always_inline)) inline Vector<C> sum(Side n, const Value& value) {
  return reduce<C>(n, C(0), value, [](Vector<C> a, Vector<C> b) { return a + b; });
}
template <class C, class Values>
__attribute__((always_inline)) inline Two<Vector<C>> sums(Side n, const Values& values) {
  using Pair = Two<Vector<C>>;
  const auto add = [](Pair a, Pair b) { return Pair{a.first + b.first, a.second + b.second}; };
  return combine_positions<C>(n, Pair{}, values, add);
}
template <class C, class Value>
__attribute__((always_inline)) inline Vector<C> maximum(Side n, C start, const Value& value) {
  return reduce<C>(n, start, value, [](Vector<C> a, Vector<C> b) { return a > b ? a : b; });
}

// Combines the lanes of each of the first `used` vectors, whose result is in the lane of that number; as
// combine_lanes() does, but for a vector's number of them at once. Two vectors become one that has lanes of both, and
// so on: less than half of what transpose() does. What the vectors have is no longer there.
template <std::size_t bit = 0, class V, std::size_t count, class Combine>
inline V combine_lanes_of_each(V (&rows)[count], int64_t used, const Combine& combine) {
  constexpr std::size_t kBit = bit == 0 ? count / 2 : bit;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kBit; ++i) {
    if (static_cast<int64_t>(i) >= used) break;
    exchange<kBit>(rows[i], rows[i + kBit]);
    rows[i] = combine(rows[i], rows[i + kBit]);
  }
  if constexpr (kBit > 1) return combine_lanes_of_each<kBit / 2>(rows, used, combine);
  return rows[0];
}

// Calls body(i, rows, columns) for all rows begin <= i < end, with room for those that are side by side.
template <class T, class Body>
inline void for_columns(int64_t begin, int64_t end, const Body& body) {
  constexpr int64_t kMost = kLanes<ComputeType<T>>;
  Columns<T> columns;
  for (int64_t i = begin; i < end; i += kMost) body(i, end - i < kMost ? end - i : kMost, columns);
}

}  // namespace
}  // namespace opwheel::cpu::OPWHEEL_ISA
