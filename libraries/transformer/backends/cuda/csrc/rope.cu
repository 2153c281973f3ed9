// Rotary position embedding.
#include <algorithm>
#include <cassert>

#include "kernels.h"
#include "rows.cuh"

namespace transformer_ops::cuda {

constexpr int64_t kHeads = 8;  // of a position that a team turns, by angles that it loads once

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
  static constexpr int kHeld = 4;

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
#pragma unroll 4
    for (int64_t head = first; head < last; ++head, x += rope.strides[1], y += head_stride) {
      if constexpr (is_interleaved) {
        team.for_each([&](auto at) { turn_neighbours(team, x, y, at, cos[at], sin[at]); });
      } else {
        team.for_each([&](auto at) {
          const int64_t half = team.length();
          const auto u = team.read(x, at), v = team.read(x + half, at), c = cos[at], s = sin[at];
          team.write(y, at, u * c - v * s);
          team.write(y + half, at, v * c + u * s);
        });
      }
    }
  }

  template <class Team, class At, class Values>
  __device__ static void turn_neighbours(const Team& team, const T* x, T* y, At at, const Values& c, const Values& s) {
    constexpr int kWidth = Team::kWidth;
    At left = at, right = at;  // vectors of both elements of the pairs
    left.begin = 2 * at.begin, right.begin = 2 * at.begin + kWidth;
    if constexpr (kWidth == 1) {
      const auto u = team.read(x, left), v = team.read(x, right);
      team.write(y, left, u * c - v * s);
      team.write(y, right, v * c + u * s);
    } else {
      const Values in[2] = {team.read(x, left), team.read(x, right)};
      Values out[2];
      OPWHEEL_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const int of = 2 * k / kWidth, lane = 2 * k % kWidth;
        const auto u = in[of].values[lane], v = in[of].values[lane + 1];
        out[of].values[lane] = u * c.values[k] - v * s.values[k];
        out[of].values[lane + 1] = v * c.values[k] + u * s.values[k];
      }
      team.write(y, left, out[0]);
      team.write(y, right, out[1]);
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
