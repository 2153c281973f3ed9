// Memory of large results on a CPU, which is kept when they are gone and given to the next ones of about that size.
//
// PyTorch returns such memory to the system at once (glibc's malloc does, from 32 MiB on always), and the system has
// to find, map and clear it again for the next result, which takes longer than most operators' arithmetic. Kept memory
// needs none of this. Its amount is limited, and less where memory is scarce; what nobody has taken for some seconds
// goes back to the system.
//
// Backends call opwheel_cache_empty_strided() through a pointer that they are given (opwheel/detail/result_cache.h);
// Python calls the other C functions (opwheel/result_cache.py). Each of opwheel's native libraries is for one minor
// release of PyTorch, because c10::Allocator is an interface in C++.
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "memory_left.h"

namespace opwheel {
namespace {

constexpr size_t kUnit = 2 << 20;  // bytes of a huge page: blocks begin at one and have whole ones
constexpr size_t kLargestDefaultLimit = size_t{1} << 30;
constexpr size_t kShare = 8;  // one part in so many of what there is, or is left, is kept at most
constexpr auto kLongestSleep = std::chrono::seconds(1);      // after which a shorter lifetime, or less memory, is seen
constexpr auto kLookAgain = std::chrono::milliseconds(250);  // how long what the system said of its memory holds

using Clock = std::chrono::steady_clock;

size_t round_up(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// New memory, aligned to kUnit; nullptr if there is none.
void* map(size_t capacity) {
  const size_t length = capacity + kUnit;
  void* const start = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start), aligned = (address + kUnit - 1) / kUnit * kUnit;
  if (aligned > address) munmap(start, aligned - address);
  const size_t behind = address + length - (aligned + capacity);
  if (behind > 0) munmap(reinterpret_cast<void*>(aligned + capacity), behind);
  return reinterpret_cast<void*>(aligned);
}

class CachingAllocator final : public c10::Allocator {
 public:
  // Never deleted: storages that are allocated here refer to it, and grow by it.
  static CachingAllocator& get() {
    static auto* allocator = new CachingAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(size_t size) override {
    void* data = nullptr;
    if (size > 0) {
      const size_t capacity = round_up(size);
      data = take(capacity);
      if (data == nullptr) data = map_and_remember(capacity);
      if (data == nullptr) {
        empty();
        data = map_and_remember(capacity);
      }
      if (data == nullptr) {
        c10::profiledCPUMemoryReporter().OutOfMemory(size);
        TORCH_CHECK(false, "there is no memory for ", size, " bytes");
      }
      c10::profiledCPUMemoryReporter().New(data, size);
    }
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  size_t limit() {
    const std::scoped_lock lock(mutex_);
    return limit_;
  }

  void set_limit(size_t bytes) {
    const std::scoped_lock lock(mutex_);
    limit_ = bytes;
    evict_down_to(limit_);
  }

  double lifetime_s() {
    const std::scoped_lock lock(mutex_);
    return std::chrono::duration<double>(lifetime_).count();
  }

  void set_lifetime_s(double seconds) {
    const std::scoped_lock lock(mutex_);
    lifetime_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (Block& block : kept_) block.expiry = std::min(block.expiry, Clock::now() + lifetime_);
  }

  // What may be kept now: less than the limit where little memory is left, nothing where this process is limited. The
  // others of this process cannot ask for what is kept when an allocation of theirs fails.
  size_t allowance() {
    const std::scoped_lock lock(mutex_);
    return allowed();
  }

  size_t kept_bytes() {
    const std::scoped_lock lock(mutex_);
    return kept_bytes_;
  }

  void empty() {
    const std::scoped_lock lock(mutex_);
    evict_down_to(0);
  }

 private:
  struct Block {
    void* data;
    size_t capacity;
    Clock::time_point expiry;
  };

  CachingAllocator() {
    // A child must not find the lock taken by a thread that it does not have. Nor has it the thread that would give
    // what is kept back to the system, where it would stay even after the parent has given it back.
    pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                   [] {
                     get().is_expiring_ = false;
                     get().evict_down_to(0);
                     get().mutex_.unlock();
                   });
  }

  static void release(void* data) {
    if (data == nullptr) return;
    c10::profiledCPUMemoryReporter().Delete(data);
    get().keep(data);
  }

  // The smallest kept block that is large enough and wastes at most a quarter of what is asked for; of several the one
  // that was freed last, which is most likely in the processor's caches.
  void* take(size_t capacity) {
    const std::scoped_lock lock(mutex_);
    auto best = kept_.rend();
    for (auto block = kept_.rbegin(); block != kept_.rend(); ++block) {
      if (block->capacity < capacity || block->capacity - capacity > capacity / 4) continue;
      if (best == kept_.rend() || block->capacity < best->capacity) best = block;
    }
    if (best == kept_.rend()) return nullptr;
    void* const data = best->data;
    kept_bytes_ -= best->capacity;
    kept_.erase(std::next(best).base());
    return data;
  }

  void* map_and_remember(size_t capacity) {
    void* const data = map(capacity);
    if (data == nullptr) return nullptr;
    const std::scoped_lock lock(mutex_);
    capacities_.emplace(data, capacity);
    kept_.reserve(capacities_.size());  // so that keep() needs no memory
    return data;
  }

  void keep(void* data) {
    const std::scoped_lock lock(mutex_);
    const size_t capacity = capacities_.at(data);
    kept_.push_back({data, capacity, Clock::now() + lifetime_});
    kept_bytes_ += capacity;
    const size_t most = allowed();
    if (capacity > most) std::rotate(kept_.begin(), kept_.end() - 1, kept_.end());  // this one, and no other
    evict_down_to(most);
    if (!kept_.empty() && !is_expiring_) is_expiring_ = start_to_expire();
  }

  // The lock is held.
  size_t allowed() {
    if (process_is_limited()) return 0;
    if (const auto now = Clock::now(); now >= look_again_) {
      look_again_ = now + kLookAgain;
      share_left_ = memory_.available() / kShare + kept_bytes_ / kShare;
    }
    return std::min(limit_, share_left_);
  }

  // Frees what was kept longest. The lock is held.
  void evict_down_to(size_t bytes) {
    auto block = kept_.begin();
    for (; kept_bytes_ > bytes; ++block) evict(*block);
    kept_.erase(kept_.begin(), block);
  }

  void evict(const Block& block) {
    kept_bytes_ -= block.capacity;
    capacities_.erase(block.data);
    munmap(block.data, block.capacity);
  }

  // A thread that lives as long as something is kept. Without one, things are kept until there are too many.
  bool start_to_expire() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // which the thread takes over: signals are for the program's own
    bool is_started = true;
    try {
      std::thread([this] { expire(); }).detach();
    } catch (const std::system_error&) {
      is_started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_started;
  }

  void expire() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!kept_.empty()) {
      evict_down_to(allowed());
      if (kept_.empty()) break;
      const auto rest = kept_.front().expiry - Clock::now();
      if (rest > Clock::duration::zero()) {
        lock.unlock();
        std::this_thread::sleep_for(std::min<Clock::duration>(rest, kLongestSleep));
        lock.lock();
      } else {
        evict(kept_.front());
        kept_.erase(kept_.begin());
      }
    }
    is_expiring_ = false;
  }

  std::mutex mutex_;
  const MemoryLeft memory_;
  size_t limit_ = std::min<size_t>(kLargestDefaultLimit, memory_.total() / kShare);
  Clock::time_point look_again_;  // at the system's memory
  size_t share_left_ = 0;         // of what was available then, without what is kept
  Clock::duration lifetime_ = std::chrono::seconds(10);
  bool is_expiring_ = false;  // a thread does
  size_t kept_bytes_ = 0;
  std::vector<Block> kept_;                       // the one that was freed last is the last
  std::unordered_map<void*, size_t> capacities_;  // of all blocks, kept or in use
};

}  // namespace
}  // namespace opwheel

extern "C" {

// Like aoti_torch_empty_strided() for a CPU.
__attribute__((visibility("default"))) AOTITorchError opwheel_cache_empty_strided(int64_t ndim, const int64_t* sizes,
                                                                                  const int64_t* strides, int32_t dtype,
                                                                                  AtenTensorHandle* result) {
  try {
    // Somebody else's allocator, such as one that watches memory, is to see everything.
    c10::Allocator* const current = c10::GetCPUAllocator();
    c10::Allocator* const allocator =
        current == c10::GetDefaultCPUAllocator() ? &opwheel::CachingAllocator::get() : current;
    at::Tensor tensor = at::detail::empty_strided_generic(
        {sizes, static_cast<size_t>(ndim)}, {strides, static_cast<size_t>(ndim)}, allocator,
        c10::DispatchKeySet(c10::DispatchKey::CPU), static_cast<c10::ScalarType>(dtype));
    *result = torch::aot_inductor::tensor_pointer_to_tensor_handle(new at::Tensor(std::move(tensor)));
    return AOTI_TORCH_SUCCESS;
  } catch (...) {
    return AOTI_TORCH_FAILURE;
  }
}

// At most so much memory is kept, in bytes. With 0, none is.
__attribute__((visibility("default"))) void opwheel_cache_set_limit(uint64_t bytes) {
  opwheel::CachingAllocator::get().set_limit(bytes);
}
__attribute__((visibility("default"))) uint64_t opwheel_cache_limit() {
  return opwheel::CachingAllocator::get().limit();
}

// What may be kept now, in bytes: the limit, or less where memory is scarce.
__attribute__((visibility("default"))) uint64_t opwheel_cache_allowance() {
  return opwheel::CachingAllocator::get().allowance();
}

// Not longer than so many seconds.
__attribute__((visibility("default"))) void opwheel_cache_set_lifetime(double seconds) {
  opwheel::CachingAllocator::get().set_lifetime_s(seconds);
}
__attribute__((visibility("default"))) double opwheel_cache_lifetime() {
  return opwheel::CachingAllocator::get().lifetime_s();
}

// The memory that is kept and not in use, in bytes.
__attribute__((visibility("default"))) uint64_t opwheel_cache_bytes() {
  return opwheel::CachingAllocator::get().kept_bytes();
}

// Returns it to the system.
__attribute__((visibility("default"))) void opwheel_cache_empty() { opwheel::CachingAllocator::get().empty(); }
}
