// Guard bytes around the memory that PyTorch allocates on a CPU, for tests: writes out of bounds are found.
//
//     | 256 times one byte | the tensor's memory | 256 times that byte |
//
// Python calls the C functions (guarded_memory.py). c10::Allocator is an interface in C++, so this is compiled for the
// PyTorch that is installed.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace opwheel {
namespace {

constexpr size_t kWidth = 256;            // a multiple of the alignment that PyTorch's allocator has
constexpr int kInFront = 1, kBehind = 2;  // bits

struct Block {
  c10::DataPtr whole;
  size_t size;            // without the guards
  unsigned char pattern;  // each byte of the guards

  char* data() const { return static_cast<char*>(whole.get()) + kWidth; }

  void protect() const {
    std::memset(data() - kWidth, pattern, kWidth);
    std::memset(data() + size, pattern, kWidth);
  }

  // Where somebody has written.
  int damage() const {
    const auto is_changed = [this](const char* guard) {
      return std::any_of(guard, guard + kWidth,
                         [this](char byte) { return static_cast<unsigned char>(byte) != pattern; });
    };
    return (is_changed(data() - kWidth) ? kInFront : 0) | (is_changed(data() + size) ? kBehind : 0);
  }
};

class GuardedAllocator final : public c10::Allocator {
 public:
  // Never deleted: storages that are allocated here refer to it, and grow by it.
  static GuardedAllocator& get() {
    static auto* allocator = new GuardedAllocator;
    return *allocator;
  }

  // False if it is at work already, or somebody's allocator cannot be replaced.
  bool begin(unsigned char pattern, bool is_filled) {
    c10::Allocator* const current = c10::GetCPUAllocator();
    if (current == this) return false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      below_ = current;
      damage_ = 0;
      pattern_ = pattern;
      is_filled_ = is_filled;
      for (const auto& [data, block] : blocks_) block->protect();  // what was damaged before is known
    }
    c10::SetCPUAllocator(this);
    return c10::GetCPUAllocator() == this;
  }

  // The damage since begin() of all memory that lies between guards, whether it is still there or not.
  int end() {
    c10::SetCPUAllocator(below_);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [data, block] : blocks_) damage_ |= block->damage();
    return damage_;
  }

  int damage_of(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(data);
    return found == blocks_.end() ? -1 : found->second->damage();
  }

  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return below_->allocate(0);
    auto block = std::make_unique<Block>(Block{below_->allocate(size + 2 * kWidth), size, pattern_});
    block->protect();
    if (is_filled_) std::memset(block->data(), pattern_, size);
    char* const data = block->data();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_.emplace(data, std::move(block));
    }
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release(void* data) {
    GuardedAllocator& self = get();
    std::unique_ptr<Block> block;  // is freed after the lock
    const std::lock_guard<std::mutex> lock(self.mutex_);
    const auto found = self.blocks_.find(data);
    if (found == self.blocks_.end()) return;
    block = std::move(found->second);
    self.damage_ |= block->damage();
    self.blocks_.erase(found);
  }

  c10::Allocator* below_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<Block>> blocks_;  // by the tensor's memory
  int damage_ = 0;                                                  // of blocks that are gone
  unsigned char pattern_ = 0;
  bool is_filled_ = false;
};

}  // namespace
}  // namespace opwheel

extern "C" {

// From here on, memory that PyTorch allocates on a CPU lies between guards of this byte, and is filled with it where
// is_filled says so. False if that cannot be.
__attribute__((visibility("default"))) bool opwheel_guards_begin(unsigned char pattern, bool is_filled) {
  return opwheel::GuardedAllocator::get().begin(pattern, is_filled);
}

// Ends that. Where such memory was written out of bounds: 1 in front of it, 2 behind it, 3 both, 0 nowhere.
__attribute__((visibility("default"))) int opwheel_guards_end() { return opwheel::GuardedAllocator::get().end(); }

// The same of the memory that begins there; -1 if it does not lie between guards.
__attribute__((visibility("default"))) int opwheel_guards_damage(const void* data) {
  return opwheel::GuardedAllocator::get().damage_of(data);
}
}
