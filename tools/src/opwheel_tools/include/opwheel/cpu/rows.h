// Loops over rows on the host: rows go to PyTorch's threads, and within a row the compiler vectorises.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

#include "opwheel/detail/error.h"

// IWYU pragma: begin_exports
#include "opwheel/detail/combine.h"
// IWYU pragma: end_exports

namespace opwheel::cpu {

// Calls part(begin, end) for ranges that together are 0 <= i < rows, none of them empty, on several threads where there
// is work enough.
// `length` is what a row costs, in elements. The first exception that a call throws is thrown again when all are done.
// Much work is in several pieces for each thread, which take one after the other, so that one that is held up, by the
// system's giving it memory for the first time for example, leaves more of them to the others. They are of equal size.
template <class Part>
void for_row_ranges(int64_t rows, int64_t length, const Part& part) {
  constexpr int64_t kElements = 32768;  // below which a second thread costs more than it saves, as in ATen
  constexpr int64_t kPiece = 1 << 19;   // elements: smaller pieces would move between the caches of cores
  constexpr int64_t kPiecesOfThread = 8;
  const int64_t cost = std::max<int64_t>(1, length), grain = std::max<int64_t>(1, kElements / cost);
  if (rows == 0) return;
  if (rows <= grain) return part(0, rows);
  uint32_t threads = 1;
  OPWHEEL_SHIM(torch_get_num_threads(&threads));
  const int64_t share = (rows + threads - 1) / threads;
  const int64_t of_thread = std::min(kPiecesOfThread, share / std::max(kPiece / cost, grain));
  struct Work {
    const Part& part;
    const int64_t rows, count;
    std::atomic<int64_t> next{0};
    std::atomic<bool> has_failed{false};
    std::exception_ptr error{};

    void call(int64_t begin, int64_t end) noexcept {
      try {
        part(begin, end);
      } catch (...) {
        if (!has_failed.exchange(true)) error = std::current_exception();
      }
    }
  } work{part, rows, std::min(rows, of_thread * threads)};
  const auto whole_share = [](int64_t begin, int64_t end, void* work) { static_cast<Work*>(work)->call(begin, end); };
  const auto pieces = [](int64_t, int64_t, void* context) {
    Work& work = *static_cast<Work*>(context);
    for (int64_t i; (i = work.next.fetch_add(1)) < work.count;) {
      work.call(work.rows * i / work.count, work.rows * (i + 1) / work.count);
    }
  };
  if (of_thread > 1) {
    OPWHEEL_SHIM(torch_parallel_for(0, rows, grain, pieces, &work));
  } else {
    OPWHEEL_SHIM(torch_parallel_for(0, rows, grain, whole_share, &work));
  }
  if (work.error) std::rethrow_exception(work.error);
}

// The same, with row(i) for each of them.
template <class Row>
void for_rows(int64_t rows, int64_t length, const Row& row) {
  for_row_ranges(rows, length, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(i);
  });
}

// Combines value(0) ... value(count - 1), several at a time: with 16 partial results the compiler vectorises, and sums
// lose less than one after another. `combine` must be associative and commutative, `start` neutral.
template <class Acc, class Value, class Combine>
Acc reduce(int64_t count, Acc start, const Value& value, const Combine& combine) {
  constexpr int kLanes = 16;
  Acc partial[kLanes];
  std::fill_n(partial, kLanes, start);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) partial[lane] = combine(partial[lane], value(i + lane));
  }
  for (; i < count; ++i) partial[0] = combine(partial[0], value(i));
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int lane = 0; lane < step; ++lane) partial[lane] = combine(partial[lane], partial[lane + step]);
  }
  return partial[0];
}

#define OPWHEEL_DETAIL_REDUCTION inline
#include "opwheel/detail/reductions.inc.h"

// Memory for one row's intermediate values: on the stack where it is little. Not initialised.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count) : heap_(count > kOnStack ? new T[static_cast<std::size_t>(count)] : nullptr) {}
  T* data() { return heap_ ? heap_.get() : stack_; }
  T& operator[](int64_t i) { return data()[i]; }

 private:
  static constexpr int64_t kOnStack = 4096 / sizeof(T);
  T stack_[kOnStack];
  std::unique_ptr<T[]> heap_;
};

}  // namespace opwheel::cpu
