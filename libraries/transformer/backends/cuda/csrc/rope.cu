// Rotary position embedding.
#include <algorithm>
#include <cassert>

#include "kernels.h"
#include "rows.cuh"

namespace transformer_ops::cuda {

constexpr int64_t kHeads = 8;  // of a position that a team turns, by angles that it loads once
constexpr int kAtOnce = 4;     // that are loaded at a time

struct Quotient {
  int64_t quotient, remainder;
};
// Of 32-bit numbers, which are most, in a fifth of the instructions.
__device__ inline Quotient divide(int64_t a, int64_t b) {
  if ((a | b) >> 32 == 0) {
    const auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
    return {x / y, x % y};
  }
  return {a / b, a % b};
}

// A "row" is kHeads heads of q or k at one position; a pair (u, v) turns into (u cos - v sin, v cos + u sin). Pairs are
// k and k + half, or, interleaved, 2 k and 2 k + 1. A team shares half a head.
template <class T, bool is_interleaved>
struct RopeRows {
  static constexpr int kHeld = 1;

  RopePair a;
  int64_t q_groups, k_groups;  // of kHeads heads

  template <class Team>
  __device__ void operator()(const Team& team) const {
    const int64_t groups = q_groups + k_groups;
    team.for_rows([&](int64_t i) {
      const auto [outer, position] = divide(i, a.q.positions);
      const auto [batch, group] = divide(outer, groups);
      const bool is_q = group < q_groups;
      turn(team, is_q ? a.q : a.k, batch, (is_q ? group : group - q_groups) * kHeads, position);
    });
  }

  template <class Team>
  __device__ void turn(const Team& team, const Rope& rope, int64_t batch, int64_t first, int64_t position) const {
    const bool has_ids = rope.position_ids != nullptr;
    int64_t angle =
        ((has_ids ? rope.position_batches : rope.angle_batches) > 1 ? batch * rope.positions : 0) + position;
    if (has_ids) {
      angle = rope.position_ids[angle];
      assert(angle >= 0 && angle < rope.table_rows && "argument 'position_ids' has a position that 'cos' has not");
    }
    const auto cos = team.load(static_cast<const T*>(rope.cos) + angle * rope.angle_stride);
    const auto sin = team.load(static_cast<const T*>(rope.sin) + angle * rope.angle_stride);
    const int64_t last = first + kHeads < rope.heads ? first + kHeads : rope.heads;
    const T* x =
        static_cast<const T*>(rope.x) + batch * rope.strides[0] + first * rope.strides[1] + position * rope.strides[2];
    // The result is contiguous.
    const int64_t head_stride = (rope.heads_first ? rope.positions : 1) * rope.length;
    T* y = static_cast<T*>(rope.y) + batch * rope.heads * rope.positions * rope.length + first * head_stride +
           position * (rope.heads_first ? 1 : rope.heads) * rope.length;
    const int64_t stride = rope.strides[1];
    team.for_each([&](auto at) {
      const auto c = cos[at], s = sin[at];
      int64_t head = 0;
      for (; head + kAtOnce <= last - first; head += kAtOnce) {
        turn_heads<kAtOnce>(team, x + head * stride, stride, y + head * head_stride, head_stride, at, c, s);
      }
      for (; head < last - first; ++head)
        turn_heads<1>(team, x + head * stride, 0, y + head * head_stride, 0, at, c, s);
    });
  }

  // Of heads that are neighbours, the pairs at a place of half a head. All are loaded before one is written: the
  // compiler has to think that it is the same memory.
  template <int kCount, class Team, class At, class Values>
  __device__ static void turn_heads(const Team& team, const T* x, int64_t x_stride, T* y, int64_t y_stride, At at,
                                    const Values& c, const Values& s) {
    constexpr int kWidth = Team::kWidth;
    At left = at, right = at;  // the two vectors with both elements of the pairs
    left.begin = is_interleaved ? 2 * at.begin : at.begin;
    right.begin = left.begin + (is_interleaved ? kWidth : team.length());
    Values in[kCount][2], out[2];
    OPWHEEL_UNROLL
    for (int i = 0; i < kCount; ++i) {
      in[i][0] = team.read(x + i * x_stride, left);
      in[i][1] = team.read(x + i * x_stride, right);
    }
    OPWHEEL_UNROLL
    for (int i = 0; i < kCount; ++i) {
      OPWHEEL_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const int first = is_interleaved ? 2 * k : k, second = is_interleaved ? first + 1 : kWidth + k;
        const auto u = in[i][first / kWidth].values[first % kWidth], v = in[i][second / kWidth].values[second % kWidth];
        out[first / kWidth].values[first % kWidth] = u * c.values[k] - v * s.values[k];
        out[second / kWidth].values[second % kWidth] = v * c.values[k] + u * s.values[k];
      }
      team.write(y + i * y_stride, left, out[0]);
      team.write(y + i * y_stride, right, out[1]);
    }
  }
};

void run(Device device, ScalarType dtype, const RopePair& a, int64_t rows, int64_t) {
  if (rows == 0) return;
  dispatch(dtype, [&]<class T>() {
    const int64_t half = a.q.length / 2;
    const auto aligned = [half](const Rope& rope) {
      return are_aligned<T>(half, {rope.x, rope.y, rope.cos, rope.sin},
                            {rope.strides[0], rope.strides[1], rope.strides[2], rope.angle_stride});
    };
    const int64_t q_groups = (a.q.heads + kHeads - 1) / kHeads, k_groups = (a.k.heads + kHeads - 1) / kHeads;
    const int64_t of_position = std::max<int64_t>(a.q.heads + a.k.heads, 1) * a.q.length;
    const int64_t positions = rows * a.q.length / of_position;  // of all batches
    const int64_t groups = positions * (q_groups + k_groups);
    const bool is_aligned = aligned(a.q) && aligned(a.k);
    if (a.q.interleaved) {
      run_rows<T>(device, groups, half, is_aligned, RopeRows<T, true>{a, q_groups, k_groups});
    } else {
      run_rows<T>(device, groups, half, is_aligned, RopeRows<T, false>{a, q_groups, k_groups});
    }
  });
}

}  // namespace transformer_ops::cuda
