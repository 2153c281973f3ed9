// Turns a kernel of the catalogue into a C function that a model compiled by AOTInductor calls directly, rather than
// through the dispatcher. Such a function is called aoti_torch_<device>_<operator>, takes handles and numbers, and then
// one pointer for each result:
//
//     extern "C" OPWHEEL_EXPORT AOTITorchError aoti_torch_cpu_mul(AtenTensorHandle a, AtenTensorHandle b,
//                                                                AtenTensorHandle* ret0) {
//       return muladd::c_shim<&K::mul>({ret0}, a, b);
//     }
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <utility>

#include "opwheel/tensor.h"

#define OPWHEEL_EXPORT __attribute__((visibility("default")))

namespace opwheel {
namespace detail {

// The caller keeps its handle, so that it is taken out of the Tensor again.
class Borrowed {
 public:
  explicit Borrowed(AtenTensorHandle handle) : tensor_(handle) {}
  Borrowed(const Borrowed&) = delete;
  ~Borrowed() { tensor_.release(); }
  operator const Tensor&() const { return tensor_; }

 private:
  Tensor tensor_;
};

inline Borrowed as_kernel_argument(AtenTensorHandle handle) { return Borrowed(handle); }
inline double as_kernel_argument(double number) { return number; }

inline void hand_over(Tensor& result, const std::array<AtenTensorHandle*, 1>& places) { *places[0] = result.release(); }

template <std::size_t N>
void hand_over(std::array<Tensor, N>& results, const std::array<AtenTensorHandle*, N>& places) {
  for (std::size_t i = 0; i < N; ++i) *places[i] = results[i].release();
}

}  // namespace detail

// The caller reports only that the call failed, so the reason goes to stderr, as that of PyTorch's own C functions
// does.
template <auto kernel, std::size_t N, class... Arguments>
AOTITorchError c_shim(AtenTensorHandle* const (&results)[N], Arguments... arguments) noexcept {
  try {
    auto values = kernel(detail::as_kernel_argument(arguments)...);
    detail::hand_over(values, std::to_array(results));
    return AOTI_TORCH_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return AOTI_TORCH_FAILURE;
  }
}

}  // namespace opwheel
