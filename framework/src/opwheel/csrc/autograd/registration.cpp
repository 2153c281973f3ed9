// The C functions that others call: Python with ctypes, programs without Python after dlopen.
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>
#include <torch/library.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel.h"
#include "notation.h"

namespace opwheel::autograd {

namespace {

// Throws if PyTorch is of another minor release than the one that this was built for: its classes are others.
void check_release() {
  const auto minor = [](uint64_t version) {
    return std::to_string(version >> 56) + "." + std::to_string(version >> 48 & 0xff);
  };
  const std::string here = minor(aoti_torch_abi_version()), wanted = minor(TORCH_ABI_VERSION);
  if (here != wanted) {
    throw std::invalid_argument("this Autograd library is for PyTorch " + wanted + ", and in this process is " + here);
  }
}

// The file of this library: what PyTorch's dispatcher says of where a kernel was registered. The registry of plugins
// reads it, which must know opwheel's own kernels from those of others.
const char* own_file() {
  static const std::string path = [] {
    Dl_info info{};
    return std::string(dladdr(reinterpret_cast<void*>(&own_file), &info) != 0 ? info.dli_fname : __FILE__);
  }();
  return path.c_str();
}

// What is described in one text, for as long as it lives.
std::unique_ptr<std::vector<torch::Library>> register_all(const std::string& text) {
  auto libraries = std::make_unique<std::vector<torch::Library>>();
  for (std::unique_ptr<Operator>& read : read_operators(text)) {
    if (read->handle.hasKernelForDispatchKey(c10::DispatchKey::Autograd)) {
      throw std::invalid_argument(read->name + ": it has a kernel for derivatives already");
    }
    const Operator& op = *read.release();  // nodes in graphs that are still alive refer to it: it is never deleted

    const std::string& qualified = op.schema().name();
    const std::string space = qualified.substr(0, qualified.find("::"));
    const auto add = [&](c10::DispatchKey key, torch::CppFunction&& kernel) {
      libraries->emplace_back(torch::Library::IMPL, space, key, own_file(), __LINE__)
          .impl(op.name.c_str(), std::move(kernel));
    };
    if (op.tensors.empty()) continue;
    add(c10::DispatchKey::Autograd, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<AutogradKernel>(op)));
    if (!op.written.empty()) {
      add(c10::DispatchKey::ADInplaceOrView,
          torch::CppFunction::makeFromBoxedFunctor(std::make_unique<VersionKernel>(op)));
    }
  }
  return libraries;
}

}  // namespace

}  // namespace opwheel::autograd

extern "C" {

// Registers derivatives; notation.h describes the text.
//
// Returns a handle for opwheel_autograd_remove. Null: nothing was registered, and message, of size bytes, says why.
__attribute__((visibility("default"))) void* opwheel_autograd_register(const char* text, char* message, size_t size) {
  try {
    opwheel::autograd::check_release();
    return opwheel::autograd::register_all(text).release();
  } catch (const c10::Error& error) {
    snprintf(message, size, "%s", error.what_without_backtrace());
  } catch (const std::exception& error) {
    snprintf(message, size, "%s", error.what());
  }
  return nullptr;
}

__attribute__((visibility("default"))) void opwheel_autograd_remove(void* handle) {
  delete static_cast<std::vector<torch::Library>*>(handle);
}
}
