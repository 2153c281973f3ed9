// The kernel that was there before, as a C++ function. PyTorch hands it out to be called in boxes alone; the members of
// c10::SafeKernelFunction that are read here are private, and an explicit instantiation may name them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

namespace opwheel::foreign {
namespace {

const c10::KernelFunction& kernel_of(const c10::SafeKernelFunction& kept);
bool is_registered(const c10::SafeKernelFunction& kept);

template <auto kernel, auto token>
struct Opened {
  friend const c10::KernelFunction& kernel_of(const c10::SafeKernelFunction& kept) { return kept.*kernel; }
  friend bool is_registered(const c10::SafeKernelFunction& kept) { return (kept.*token)->isValid(); }
};
template struct Opened<&c10::SafeKernelFunction::kernel_, &c10::SafeKernelFunction::token_>;

// Throws if its registration is gone, as c10::SafeKernelFunction::callBoxed does.
const c10::KernelFunction& previous_kernel(const c10::SafeKernelFunction& kept) {
  TORCH_CHECK(is_registered(kept), "the kernel that was there before is no longer registered: ", kept.debug());
  return kernel_of(kept);
}

}  // namespace
}  // namespace opwheel::foreign
