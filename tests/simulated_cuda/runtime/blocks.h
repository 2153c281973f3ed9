// The threads of a block, on one thread of the host: each is a fiber that runs until it waits for others. The first
// thread that can go on does, in every other block the last one: so a warp runs as far ahead of the others as barriers
// allow, and what a missing barrier lets it read or overwrite too early shows in the results.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

namespace simulated_cuda {

constexpr unsigned kWarp = 32;
constexpr std::size_t kStack = 256 << 10;  // bytes

enum class State { not_started, ready, at_barrier, at_cluster_barrier, at_exchange, done };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
};

// Lanes of a warp that exchange values among themselves: all, or a part of it. A lane can be one exchange ahead of
// another one that has still to read: two take turns.
struct Lanes {
  unsigned mask;
  std::uint64_t values[2][kWarp];
  unsigned turn = 0;
  unsigned arrived = 0;
};
using Warp = std::list<Lanes>;

class Block {
 public:
  Block(unsigned threads, bool last_first, const std::function<void(unsigned)>& body)
      : last_first_(last_first),
        body_(body),
        states_(threads, State::not_started),
        fibers_(threads),
        warps_((threads + kWarp - 1) / kWarp) {}

  // Lets threads run until each has come to its end or waits for others, or one has made a mistake.
  void advance();
  bool can_advance() { return next() != count(); }
  bool is_done() const { return first_ == count(); }
  bool has_begun() const { return has_begun_; }
  // nullptr: none.
  const char* mistake() const { return mistake_; }

  // What a thread calls. It is to wait for all of the block; or until release().
  void wait();
  void wait_for_cluster() { suspend(State::at_cluster_barrier); }
  std::uint64_t exchange(std::uint64_t value, unsigned source, unsigned mask);
  [[noreturn]] void give_up(const char* mistake);

  // Those that wait for the cluster can go on.
  void release();

 private:
  const bool last_first_;
  const std::function<void(unsigned)>& body_;
  std::vector<State> states_;
  std::vector<Fiber*> fibers_;
  std::vector<Warp> warps_;
  std::vector<Fiber*> idle_;
  std::size_t started_ = 0;  // fibers
  unsigned running_ = 0, first_ = 0, at_barrier_ = 0;
  const char* mistake_ = nullptr;
  bool has_begun_ = false;
  ucontext_t home_;

  unsigned count() const { return static_cast<unsigned>(states_.size()); }
  unsigned place(unsigned i) const { return last_first_ ? count() - 1 - i : i; }
  unsigned next();
  static void run_threads();
  void start(unsigned thread);
  void suspend(State state);
  void make_ready(State waiting);
};

// The one of which this thread of the host runs the threads.
Block& this_block();

}  // namespace simulated_cuda
