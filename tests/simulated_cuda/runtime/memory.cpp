// Memory of the devices: the host's, filled with nan when it is allocated, with a limit for each device. Where
// SIMULATED_CUDA_GUARD is set, a page behind each allocation ends the process that reaches it: with
// PYTORCH_NO_CUDA_MEMORY_CACHING each tensor is an allocation.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "stream.h"

namespace simulated_cuda {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kVector = 16, kPage = 4096;
constexpr int kNan = 0xff;  // in every byte of a floating-point number
constexpr int kHost = -1;

struct Block {
  std::size_t bytes;
  int device;  // kHost: pinned memory
  void* pages = nullptr;
  std::size_t mapped = 0;  // bytes of them
};

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

// Memory that ends at the guard, to the last vector; null where there is none.
char* before_guard(Block& block) {
  block.mapped = rounded(block.bytes, kPage) + kPage;
  block.pages = mmap(nullptr, block.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block.pages == MAP_FAILED) return nullptr;
  char* const guard = static_cast<char*>(block.pages) + block.mapped - kPage;
  return mprotect(guard, kPage, PROT_NONE) == 0 ? guard - rounded(block.bytes, kVector) : nullptr;
}

std::mutex mutex;
std::map<const char*, Block>& blocks() {
  static auto& all = *new std::map<const char*, Block>;
  return all;
}
std::size_t used[kDevices];

// PyTorch's own kernels cannot run. Whoever allocates memory is about to compute: from then on, its operators compute
// on the CPU.
void load_operators() {
  const char* library = std::getenv("SIMULATED_CUDA_OPERATORS");
  if (library == nullptr || dlopen(library, RTLD_NOW) != nullptr) return;
  std::fprintf(stderr, "simulated CUDA: %s\n", dlerror());
  std::abort();
}

cudaError_t allocate(void** data, std::size_t bytes, int device) {
  if (capture_forbids()) return result(cudaErrorStreamCaptureUnsupported);
  if (device != kHost) {
    static std::once_flag once;
    std::call_once(once, load_operators);
  }
  const std::lock_guard lock(mutex);
  if (device != kHost && bytes > kMemory - used[device]) return result(cudaErrorMemoryAllocation);
  static const bool is_guarded = std::getenv("SIMULATED_CUDA_GUARD") != nullptr;
  Block block{bytes, device};
  *data = is_guarded ? before_guard(block) : std::aligned_alloc(kAlignment, rounded(bytes, kAlignment));
  if (*data == nullptr) return result(cudaErrorMemoryAllocation);
  std::memset(*data, kNan, bytes);
  blocks()[static_cast<char*>(*data)] = block;
  if (device != kHost) used[device] += bytes;
  return cudaSuccess;
}

cudaError_t release(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (capture_forbids()) return result(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(mutex);
  const auto found = blocks().find(static_cast<char*>(data));
  if (found == blocks().end()) return result(cudaErrorInvalidValue);
  const Block block = found->second;
  if (block.device != kHost) used[block.device] -= block.bytes;
  blocks().erase(found);
  block.pages == nullptr ? std::free(data) : static_cast<void>(munmap(block.pages, block.mapped));
  return cudaSuccess;
}

// The block that holds an address; null for memory that CUDA does not know.
const Block* block_of(const void* data) {
  const std::lock_guard lock(mutex);
  auto found = blocks().upper_bound(static_cast<const char*>(data));
  if (found == blocks().begin()) return nullptr;
  --found;
  return static_cast<const char*>(data) < found->first + found->second.bytes ? &found->second : nullptr;
}

}  // namespace

cudaError_t check_addresses(const void* parameters, std::size_t bytes) {
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, static_cast<const char*>(parameters) + at, sizeof word);
    const Block* block = block_of(word);
    if (block != nullptr && block->device != kHost && block->device != current_device()) {
      return result(cudaErrorIllegalAddress);
    }
  }
  return cudaSuccess;
}

namespace {

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (block_of(from) == nullptr) {  // pageable: read before the call returns
    const char* begin = static_cast<const char*>(from);
    return submit(stream, [to, values = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(to, values.data(), values.size());
    });
  }
  const cudaError_t error = submit(stream, [=] { std::memcpy(to, from, bytes); });
  if (error != cudaSuccess) return error;
  return block_of(to) == nullptr ? cudaStreamSynchronize(stream) : cudaSuccess;
}

}  // namespace
}  // namespace simulated_cuda

using namespace simulated_cuda;

extern "C" {

cudaError_t cudaMalloc(void** data, std::size_t bytes) { return allocate(data, bytes, current_device()); }
cudaError_t cudaFree(void* data) {
  const int device = current_device();
  if (const Block* const block = block_of(data)) cudaSetDevice(block->device);  // which may still use it
  cudaDeviceSynchronize();
  cudaSetDevice(device);
  return release(data);
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) { return allocate(data, bytes, kHost); }
cudaError_t cudaFreeHost(void* data) { return release(data); }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(mutex);
  *total = kMemory;
  *free = kMemory - used[current_device()];
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  *attributes = {};
  const Block* block = block_of(data);
  if (block == nullptr) return cudaSuccess;
  attributes->type = block->device == kHost ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = block->device == kHost ? 0 : block->device;
  attributes->hostPointer = attributes->devicePointer = const_cast<void*>(data);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (capture_forbids()) return result(cudaErrorStreamCaptureUnsupported);
  const cudaError_t error = copy(to, from, bytes, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return submit(stream, [=] { std::memset(data, value, bytes); });
}

}  // extern "C"
