// The parts of a CUDA runtime that PyTorch and a backend call, on the host: libcudart.so.13 without a GPU. In the place
// of others the toolkit puts functions that say so and fail.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "devices.h"

namespace simulated_cuda {

using Work = std::function<void()>;

// ---- devices.cpp ----

int current_device();
// What cudaGetLastError() gives next; success passes through.
cudaError_t result(cudaError_t error);
// A kernel has failed: from now on nothing works any more, as on a device.
void break_down(cudaError_t error);
bool is_broken();

// ---- streams.cpp ----

cudaError_t submit(cudaStream_t stream, Work work);
void wait(cudaStream_t stream);

// ---- kernels.cpp ----

// Whether kernels are not run at all: SIMULATED_CUDA_LAUNCHES=nothing, to count what the host does. PyTorch's own are
// launched then as well, where its operators are not replaced (load_operators() in memory.cpp).
bool launches_do_nothing();

// ---- memory.cpp ----

// An error if there is an address of another device's memory among the parameters of a kernel.
cudaError_t check_addresses(const void* parameters, std::size_t bytes);

// ---- blocks.cpp ----

// Says what a kernel does wrong, after which nothing works any more.
void report(const char* mistake);
// Calls thread(i) for 0 <= i < threads, as threads that can wait for each other; the last one first, or the first one.
void run_block(unsigned threads, bool last_first, const std::function<void(unsigned)>& thread);
// What a thread calls in it: __syncthreads, and an exchange of values among lanes of its warp, and an
// assertion that failed.
void wait_for_block();
std::uint64_t exchange(std::uint64_t value, unsigned source, unsigned mask);
[[noreturn]] void fail_assertion(const char* condition);

// ---- clusters.cpp ----

// An error if the device of the stream does not launch clusters of so many blocks.
cudaError_t check_clusters(cudaStream_t stream, dim3 grid, unsigned blocks);
// How many blocks a cluster of the current device has at most.
cudaError_t ask_largest_cluster(int* blocks);
// Calls thread(i) for 0 <= i < threads in each block, on a thread of the host; on it, begin(block) comes first, which
// gives the address of a variable of threads in the library of the kernel.
void run_clusters(unsigned clusters, unsigned blocks, unsigned threads,
                  const std::function<const char*(unsigned block)>& begin, const std::function<void(unsigned)>& thread);
// What a thread calls in it.
unsigned rank_in_cluster();
unsigned blocks_of_cluster();
void wait_for_cluster();
void* address_in_cluster(const void* mine, unsigned rank);

// ---- graphs.cpp ----

// Work in the order in which it was captured: each node comes after what it depends on.
struct Capture {
  std::uint64_t id;
  cudaStreamCaptureMode mode;
  std::vector<Work> nodes;
  std::vector<cudaStream_t> streams;  // the first began it
};

// Whether this thread may now do what would wait for a device or change its memory, at once.
bool capture_forbids();

}  // namespace simulated_cuda
