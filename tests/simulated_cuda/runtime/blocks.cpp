#include "blocks.h"

#include <cstdio>
#include <cstdlib>

#include "runtime.h"

namespace simulated_cuda {
namespace {

thread_local Block* current = nullptr;

}  // namespace

// The thread that is to go on, or count().
unsigned Block::next() {
  while (first_ < count() && states_[place(first_)] == State::done) ++first_;
  for (unsigned i = first_; i < count(); ++i) {
    const State state = states_[place(i)];
    if (state == State::not_started || state == State::ready) return place(i);
  }
  return count();
}

// What a fiber does: one thread after the other, as long as none has to wait.
void Block::run_threads() {
  Block& block = *current;
  for (;;) {
    Fiber* const fiber = block.fibers_[block.running_];
    block.body_(block.running_);
    block.states_[block.running_] = State::done;
    const unsigned thread = block.next();
    if (thread == block.count() || block.states_[thread] != State::not_started) {
      block.idle_.push_back(fiber);
      setcontext(&block.home_);
    }
    block.running_ = thread;
    block.states_[thread] = State::ready;
    block.fibers_[thread] = fiber;
  }
}

// On a fiber of its own.
void Block::start(unsigned thread) {
  static thread_local std::vector<std::unique_ptr<Fiber>> all;
  if (idle_.empty()) {
    if (started_ == all.size()) all.push_back(std::make_unique<Fiber>());
    idle_.push_back(all[started_++].get());
  }
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStack;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, &Block::run_threads, 0);
  fibers_[thread] = fiber;
  states_[thread] = State::ready;
}

void Block::advance() {
  current = this;
  has_begun_ = true;
  for (unsigned thread = next(); thread != count() && mistake_ == nullptr; thread = next()) {
    if (states_[thread] == State::not_started) start(thread);
    running_ = thread;
    swapcontext(&home_, &fibers_[thread]->context);
  }
  current = nullptr;
}

void Block::suspend(State state) {
  const unsigned thread = running_;
  states_[thread] = state;
  swapcontext(&fibers_[thread]->context, &home_);
}

void Block::give_up(const char* mistake) {
  mistake_ = mistake;
  setcontext(&home_);
  std::abort();  // not reached
}

void Block::wait() {
  if (++at_barrier_ < count()) return suspend(State::at_barrier);
  at_barrier_ = 0;
  make_ready(State::at_barrier);
}

void Block::release() { make_ready(State::at_cluster_barrier); }

void Block::make_ready(State waiting) {
  for (State& state : states_) {
    if (state == waiting) state = State::ready;
  }
}

std::uint64_t Block::exchange(std::uint64_t value, unsigned source, unsigned mask) {
  const unsigned lane = running_ % kWarp;
  Warp& all = warps_[running_ / kWarp];
  auto found = all.end();
  for (auto lanes = all.begin(); lanes != all.end(); ++lanes) {
    if (lanes->mask == mask) found = lanes;
    if (lanes->mask != mask && (lanes->mask & mask) != 0 && lanes->arrived != 0) {
      give_up("lanes of a warp exchange values under different masks");
    }
  }
  if (found == all.end()) found = all.insert(found, Lanes{.mask = mask});
  Lanes& warp = *found;
  if ((mask >> lane & 1) == 0) give_up("a lane exchanges values under a mask without it");
  if ((mask >> source & 1) == 0) give_up("a lane reads the value of one that is not in the mask");
  const unsigned turn = warp.turn;
  warp.values[turn][lane] = value;
  warp.arrived |= 1U << lane;
  if (warp.arrived != warp.mask) {
    suspend(State::at_exchange);
  } else {
    warp.arrived = 0;
    warp.turn ^= 1;
    const unsigned first = running_ / kWarp * kWarp;
    for (unsigned i = first; i < first + kWarp && i < count(); ++i) {
      if ((mask >> i % kWarp & 1) != 0 && states_[i] == State::at_exchange) states_[i] = State::ready;
    }
  }
  return warp.values[turn][source];
}

Block& this_block() { return *current; }

void report(const char* mistake) {
  std::fprintf(stderr, "simulated CUDA: %s\n", mistake);
  if (!is_broken()) break_down(cudaErrorLaunchFailure);
}

void run_block(unsigned threads, bool last_first, const std::function<void(unsigned)>& body) {
  if (is_broken()) return;
  Block block(threads, last_first, body);
  block.advance();
  if (block.mistake() != nullptr) return report(block.mistake());
  if (!block.is_done()) report("some threads of a block wait for others that never come");
}
void wait_for_block() { current->wait(); }
void fail_assertion(const char* condition) {
  std::fprintf(stderr, "Assertion `%s` failed.\n", condition);
  break_down(cudaErrorAssert);
  current->give_up("an assertion failed");
}
std::uint64_t exchange(std::uint64_t value, unsigned source, unsigned mask) {
  return current->exchange(value, source, mask);
}

}  // namespace simulated_cuda
