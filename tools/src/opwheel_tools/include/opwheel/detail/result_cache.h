// Where the memory of large new results on a CPU comes from: PyTorch's allocator, or one that keeps what is freed.
//
// PyTorch's allocator returns large memory to the system, which has to find and clear it anew for every result.
// opwheel's native library has an allocator that keeps some (docs/large-results.md has its costs, and how to
// turn it off). It is C++ of one release of PyTorch, so a backend knows no more of it than the address of a function.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <atomic>
#include <cstdint>

namespace opwheel::detail::result_cache {

// aoti_torch_empty_strided() for a CPU, as the native library has it.
using EmptyStrided = AOTITorchError (*)(int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                        AtenTensorHandle* result);

// Bytes from which on results come from there. glibc returns memory of this size to the system again and again where
// a program has not freed larger blocks before. Smaller results it mostly keeps, and allocates what was used last.
inline constexpr int64_t kLeast = 4 << 20;

// Null: PyTorch's allocator. Every library has its own.
inline std::atomic<EmptyStrided> empty_strided{nullptr};

}  // namespace opwheel::detail::result_cache

// Looked up in a library by whoever opens it and knows the policy: the registry in Python, opwheel/load.h in C++.
extern "C" __attribute__((visibility("default"), used)) inline void opwheel_set_result_cache(
    opwheel::detail::result_cache::EmptyStrided empty_strided) {
  opwheel::detail::result_cache::empty_strided.store(empty_strided, std::memory_order_relaxed);
}
