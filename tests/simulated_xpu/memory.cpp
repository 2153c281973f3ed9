// Device memory: one block of malloc_device for each device, of which the page protection lets through only the device
// at work. Freed memory is reused in the order of its stream, as PyTorch's caching allocator does it, and overwritten,
// so that who uses it too late, or on another stream, computes nan.
#include <c10/util/llvmMathExtras.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "device.h"

namespace simulated_xpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kCapacity = std::size_t{1} << 31;
constexpr std::size_t kSmallest = 512;
constexpr int kFreed = 0xff;  // nan in every floating-point dtype

bool overwrites_freed = true;

struct Block {
  c10::DeviceIndex device;
  c10::StreamId stream;  // the current one when it was allocated
  std::size_t size;
  std::set<c10::StreamId> used_on;
};

class Memory {
 public:
  explicit Memory(c10::DeviceIndex device) : device_(device) {
    start_ = static_cast<char*>(sycl::aligned_alloc_device(kPage, kCapacity, queue(device, 0)));
    TORCH_CHECK(start_ != nullptr, "the simulated XPU could not reserve its memory");
    next_ = start_;
    protect(PROT_NONE);
  }

  void protect(int access) { TORCH_CHECK(mprotect(start_, kCapacity, access) == 0, "mprotect failed"); }
  bool holds(const void* data) const { return data >= start_ && data < start_ + kCapacity; }

  void* allocate(std::size_t bytes, c10::StreamId stream) {
    const std::size_t size = std::max(kSmallest, static_cast<std::size_t>(c10::llvm::PowerOf2Ceil(bytes)));
    auto& free = free_[{stream, size}];
    char* data = next_;
    if (!free.empty()) {
      data = free.back();
      free.pop_back();
    } else {
      TORCH_CHECK(next_ + size <= start_ + kCapacity, "simulated XPU ", int{device_}, ": out of memory (", bytes,
                  " bytes wanted)");
      next_ += size;
    }
    blocks_.emplace(data, Block{device_, stream, size, {}});
    return data;
  }

  // The block goes back to the stream it came from, which first waits for the others that it was recorded on.
  void release(void* data) {
    const auto found = blocks_.find(static_cast<char*>(data));
    const Block block = std::move(found->second);
    blocks_.erase(found);
    sycl::queue& owner = queue(device_, block.stream);
    for (const c10::StreamId stream : block.used_on) {
      owner.ext_oneapi_submit_barrier({queue(device_, stream).ext_oneapi_submit_barrier()});
    }
    if (overwrites_freed) {
      open_memory(device_);
      owner.memset(data, kFreed, block.size);
    }
    free_[{block.stream, block.size}].push_back(static_cast<char*>(data));
  }

  void record(void* data, c10::StreamId stream) {
    Block& block = blocks_.at(static_cast<char*>(data));
    if (stream != block.stream) block.used_on.insert(stream);
  }

 private:
  c10::DeviceIndex device_;
  char* start_;
  char* next_;
  std::map<char*, Block> blocks_;
  std::map<std::pair<c10::StreamId, std::size_t>, std::vector<char*>> free_;
};

std::recursive_mutex mutex;
c10::DeviceIndex open_device = -1;

Memory& memory(c10::DeviceIndex device) {
  static auto& memories = *new std::vector<Memory>{Memory(0), Memory(1)};
  return memories[device];
}

void release(void* data) {
  const std::lock_guard lock(mutex);
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    if (memory(device).holds(data)) return memory(device).release(data);
  }
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::DeviceIndex device = current_device();
    if (bytes == 0) return {nullptr, c10::Device(kType, device)};
    const std::lock_guard lock(mutex);
    void* data = memory(device).allocate(bytes, current_stream(device));
    return {data, data, &release, c10::Device(kType, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const c10::DeviceIndex device = memory(0).holds(to) ? 0 : 1;
    open_memory(device);
    current_queue(device).memcpy(to, from, bytes);
  }
};

void close_memory() {
  if (open_device < 0) return;
  synchronize(open_device);
  memory(open_device).protect(PROT_NONE);
  open_device = -1;
}

}  // namespace

c10::Allocator& allocator() {
  static auto& instance = *new Allocator;
  return instance;
}

void open_memory(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex);
  if (open_device == device) return;
  close_memory();
  memory(device).protect(PROT_READ | PROT_WRITE);
  open_device = device;
}

void record_use(const c10::DataPtr& data, c10::StreamId stream) {
  const std::lock_guard lock(mutex);
  if (data.get() != nullptr) memory(data.device().index()).record(data.get(), stream);
}

}  // namespace simulated_xpu

using namespace simulated_xpu;

// From now on, until the next operation, the host cannot read any device memory.
extern "C" void simulated_xpu_close_memory() {
  const std::lock_guard lock(mutex);
  close_memory();
}

extern "C" void simulated_xpu_overwrite_freed(bool on) { overwrites_freed = on; }
