// Loops over rows on a CUDA device in vectors of 16 bytes, for kernels that have to be as fast as memory. A team of
// threads works on a row: a part of a warp, a warp, a block or a cluster of blocks, as the row's length wants it. Where
// the row fits into the team's registers, memory is read once; else it is read again for each use, mostly from the
// cache. A kernel is a functor that takes the team, whatever it is, and goes through the team's rows:
//
//     template <class T>
//     struct Normalize {
//       static constexpr int kHeld = 4;  // vectors that a thread holds at most
//       static constexpr bool kUsesClusters = true;  // if left out: false
//       static constexpr int kLeastBlocks = 2;  // for which a multiprocessor has registers; if left out: any
//
//       const T *x, *weight;
//       T* y;
//       int64_t length;
//
//       template <class Team>
//       __device__ void operator()(const Team& team) const {
//         using C = opwheel::ComputeType<T>;
//         const auto w = team.load(weight);  // stays in registers for all rows
//         team.for_rows([&](int64_t i) {
//           const auto row = team.load(x + i * length);
//           const C squares = team.sum([&](auto at) { return row[at] * row[at]; });
//           const C r = 1 / std::sqrt(squares / C(length));
//           team.store(y + i * length, [&](auto at) { return row[at] * r * w[at]; });
//         });
//       }
//     };
//
//     const bool is_aligned = cuda::are_aligned<T>(length, {x, weight, y});
//     const auto plan = cuda::plan_teams<T, Normalize<T>>(device, rows, length, is_aligned);
//     cuda::run_teams(plan, Normalize<T>{x, weight, y, length});
//
// row[at] is the few elements at a place of the row, converted to the type that is computed in (Lanes): they have the
// arithmetic of one number, and map() applies a function to each. Threads of a team must make the same calls of sum,
// two_sums, maximum and combined. What one of them writes is read by itself alone. Clusters are for kernels that need a
// whole row at a time, where the device has them: rows that one block cannot hold are shared by 2, 4 or 8.
#pragma once

#if defined(__HIPCC__)
#error "opwheel/cuda/vectorized_rows.cuh is for CUDA, whose warps have 32 threads; write this kernel for ROCm by hand"
#endif

#include <cuda_runtime.h>

#include <cstdint>

#include "opwheel/cuda/enqueue.cuh"
#include "opwheel/detail/cuda/cluster.cuh"

// IWYU pragma: begin_exports
#include "opwheel/detail/combine.h"
#include "opwheel/detail/cuda/pack.cuh"
#include "opwheel/detail/cuda/stream.h"
#include "opwheel/detail/cuda/team.cuh"
#include "opwheel/detail/cuda/team_plan.cuh"
// IWYU pragma: end_exports

namespace opwheel::cuda {

template <class F>
constexpr bool kUsesClusters = requires { requires F::kUsesClusters; };

// Blocks, of kMostOfTeam threads each; 0: as many as the compiler thinks best.
template <class F>
constexpr int kLeastBlocks = 0;
template <class F>
  requires requires { F::kLeastBlocks; }
constexpr int kLeastBlocks<F> = F::kLeastBlocks;

// Teams for a functor over elements of type T; `resident` as TeamPlan has it.
template <class T, class F>
TeamPlanOf<T, F::kHeld, kUsesClusters<F>> plan_teams(Device device, int64_t rows, int64_t length, bool is_aligned,
                                                     int64_t resident = kAnyNumber) {
  return {device, rows, length, is_aligned, resident};
}

namespace detail {

// Whether a multiprocessor has several blocks, so that the host has to ask how many it runs at a time.
inline bool has_more_than_one_each(const TeamPlan& plan) {
  return plan.blocks * plan.cluster > multiprocessors(plan.device);
}
inline int64_t blocks_at_a_time(const TeamPlan& plan, const void* kernel) {
  int of_multiprocessor = 0;
  const int threads = static_cast<int>(plan.threads * plan.in_block);
  check_launch(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, kernel, threads, 0));
  return of_multiprocessor * multiprocessors(plan.device);
}

template <class Team, class F>
__global__ void __launch_bounds__(kMostOfTeam, kLeastBlocks<F>)
    run_team(const F functor, int64_t rows, int64_t length, int64_t teams) {
  functor(Team(rows, length, teams));
}

// Of blocks that are a cluster.
template <class Team, class F>
__global__ void __launch_bounds__(kMostOfTeam, kLeastBlocks<F>)
    run_team_of_blocks(const F functor, int64_t rows, int64_t length, int64_t teams) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();  // not launched where largest_cluster() is 1
#else
  functor(Team(rows, length, teams));
#endif
}

template <class Team, class F>
void launch_team_of_blocks(TeamPlan plan, const F& functor, void* stream) {
  const auto kernel = &run_team_of_blocks<Team, F>;
  ClusterLaunch launch(plan.cluster, plan.threads, stream);
  if (plan.is_fitted && has_more_than_one_each(plan)) {
    plan.limit(launch.at_a_time(reinterpret_cast<const void*>(kernel)));
  }
  launch.run(kernel, plan.blocks, functor, plan.rows, plan.length, plan.teams);
}

// Threads of a cluster hold kHeld vectors, or none: fewer would do for a row that a block holds.
template <class T, class F>
void launch_clusters_of(const TeamPlan& plan, const F& functor, void* stream) {
  constexpr int width = kVectorBytes / sizeof(T);
  if (!plan.has_vectors) return launch_team_of_blocks<Team<T, 0, 1, BlockOfCluster>>(plan, functor, stream);
  if (plan.held == 0) return launch_team_of_blocks<Team<T, 0, width, BlockOfCluster>>(plan, functor, stream);
  launch_team_of_blocks<Team<T, F::kHeld, width, BlockOfCluster>>(plan, functor, stream);
}

template <class Team, class F>
void launch_team(TeamPlan plan, const F& functor, void* stream) {
  const auto kernel = &run_team<Team, F>;
  if (plan.is_fitted && has_more_than_one_each(plan)) {
    plan.limit(blocks_at_a_time(plan, reinterpret_cast<const void*>(kernel)));
  }
  void* arguments[] = {const_cast<F*>(&functor), &plan.rows, &plan.length, &plan.teams};
  launch(kernel, dim3(static_cast<uint32_t>(plan.blocks)), dim3(plan.threads, plan.in_block), arguments, stream);
}

}  // namespace detail

// Runs functor(team) in all teams, on PyTorch's current stream of the device, and does not wait. The functor is copied
// to the device: its pointers must be to the device's memory. The plan is that of this functor, or of one that is
// alike.
template <class T, int kHeld, bool kClusters, class F>
void run_teams(const TeamPlanOf<T, kHeld, kClusters>& plan, const F& functor) {
  static_assert(kHeld == F::kHeld && kClusters == kUsesClusters<F>,
                "opwheel: this plan of teams was made for another functor, whose kHeld or kUsesClusters is not that of "
                "the functor which is to run; make it by plan_teams<T, F> with the functor's own type");
  if (plan.rows == 0) return;
  launching([&] {
    constexpr int width = kVectorBytes / sizeof(T);
    const CurrentStream stream(plan.device.index);
    if constexpr (sizeof(T) <= kLargestElement) {
      if constexpr (kUsesClusters<F>) {
        if (plan.cluster > 1) return detail::launch_clusters_of<T>(plan, functor, stream.get());
      }
      if (plan.has_vectors) {
        if (plan.held == 0) return detail::launch_team<Team<T, 0, width>>(plan, functor, stream.get());
        if (plan.held == 1) return detail::launch_team<Team<T, 1, width>>(plan, functor, stream.get());
        if constexpr (F::kHeld > 1) {
          return detail::launch_team<Team<T, F::kHeld, width>>(plan, functor, stream.get());
        }
      }
    }
    detail::launch_team<Team<T, 0, 1>>(plan, functor, stream.get());
  });
}

}  // namespace opwheel::cuda
