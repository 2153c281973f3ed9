// PyTorch's own kernels, which are machine code for a GPU: one is simulated, any other is an error that names it.
#include <cxxabi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "runtime.h"

namespace simulated_cuda {
namespace {

constexpr double kCyclesPerSecond = 2e9;

std::unordered_map<const void*, const char*>& names() {
  static auto& all = *new std::unordered_map<const void*, const char*>;
  return all;
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

cudaError_t launch(const void* kernel, void** arguments, cudaStream_t stream) {
  if (launches_do_nothing()) return cudaSuccess;
  const auto found = names().find(kernel);
  const std::string name = found == names().end() ? "an unknown kernel" : demangled(found->second);
  if (name.find("spin_kernel(") != std::string::npos) {  // torch.cuda._sleep
    const std::chrono::duration<double> pause(static_cast<double>(*static_cast<long*>(arguments[0])) /
                                              kCyclesPerSecond);
    return submit(stream, [pause] { std::this_thread::sleep_for(pause); });
  }
  std::fprintf(stderr, "simulated CUDA cannot run %s\n", name.c_str());
  return result(cudaErrorNotSupported);
}

}  // namespace

bool launches_do_nothing() {
  static const char* const asked = std::getenv("SIMULATED_CUDA_LAUNCHES");
  return asked != nullptr && std::string_view(asked) == "nothing";
}

}  // namespace simulated_cuda

using namespace simulated_cuda;

struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};
static thread_local Configuration configuration;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char* name, const char*, int, void*, void*, void*, void*,
                            int*) {
  names()[function] = name;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, std::size_t, cudaStream_t stream) {
  return launch(kernel, arguments, stream);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments, std::size_t, cudaStream_t stream) {
  return launch(kernel, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* launched, const void* kernel, void** arguments) {
  return launch(kernel, arguments, launched->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  const auto& [major, minor] = kModels[current_device()].capability;
  attributes->ptxVersion = attributes->binaryVersion = 10 * major + minor;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
// Few, so that there are several rows for each.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   std::size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t*) {
  *clusters = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* blocks, const void*, const cudaLaunchConfig_t*) {
  return ask_largest_cluster(blocks);
}

}  // extern "C"
