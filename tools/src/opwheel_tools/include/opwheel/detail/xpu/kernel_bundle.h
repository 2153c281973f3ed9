// The kernels of a library's embedded device images (opwheel_tools.build.SyclLibrary), ready to launch. There is one
// image for each dtype, with that name, so that a GPU without float64 or float16 runs the others.
#pragma once

#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sycl/sycl.hpp>
#include <vector>

#include "opwheel/detail/device_image.h"
#include "opwheel/detail/error.h"
#include "opwheel/detail/tensor.h"
#include "opwheel/detail/xpu/spirv.h"

namespace opwheel::xpu {
namespace detail {

namespace compiler = ::sycl::ext::oneapi::experimental;
using Executable = ::sycl::kernel_bundle<::sycl::bundle_state::executable>;

constexpr std::array<const char*, 4> kImageNames = {"float16", "bfloat16", "float32", "float64"};  // in DType's order
constexpr const char* kSpirvPrefix = "__sycl_kernel_";  // what DPC++ makes of a free function's name

inline std::string name_of(const ::sycl::device& device) { return device.get_info<::sycl::info::device::name>(); }

inline const DeviceImage& image_of(DType dtype) {
  const std::string_view name = kImageNames[index_of(dtype)];
  for (const DeviceImage& image : device_images()) {
    if (image.name == name) return image;
  }
  fail(library_name(), " has no device image for ", name, "; build it with one: images= of SyclLibrary in setup.py");
}

inline void check_aspect(const ::sycl::device& device, DType dtype) {
  const bool is_half = dtype == DType::float16;
  if (!is_half && dtype != DType::float64) return;
  if (device.has(is_half ? ::sycl::aspect::fp16 : ::sycl::aspect::fp64)) return;
  fail(name_of(device), " cannot compute in ", dtype_name(code_of(dtype)),
       " (it lacks SYCL's aspect::", is_half ? "fp16" : "fp64",
       "); convert the tensors to another dtype, for instance with .to(torch.float32)");
}

// The part of the image with the kernel. What is compiled ahead of time is one SYCLBIN.
inline Executable load(const DeviceImage& image, const std::string& entry, const ::sycl::context& context,
                       const ::sycl::device& device) {
  if (!spirv::is_spirv(image.bytes)) {
    const ::sycl::span<char> bytes(const_cast<char*>(image.bytes.data()), image.bytes.size());
    return compiler::get_kernel_bundle<::sycl::bundle_state::executable>(context, std::vector{device}, bytes);
  }
  const auto module = spirv::module_with(image.bytes, kSpirvPrefix + entry);
  if (module.empty()) throw std::runtime_error("it has no kernel " + entry);
  const std::vector<std::byte> bytes(module.begin(), module.end());
  auto source = compiler::create_kernel_bundle_from_source(context, compiler::source_language::spirv, bytes);
  return compiler::build(source, std::vector{device});
}

inline Executable compile(const DeviceImage& image, const ::sycl::context& context, const ::sycl::device& device) {
  auto source = compiler::create_kernel_bundle_from_source(context, compiler::source_language::sycl,
                                                           std::string(device_source()));
  const std::vector<std::string> options(image.options.begin(), image.options.end());
  return compiler::build(source, std::vector{device}, compiler::properties{compiler::build_options{options}});
}

inline Executable load_or_compile(const DeviceImage& image, const std::string& entry, const ::sycl::context& context,
                                  const ::sycl::device& device) {
  std::string reason;
  try {
    return load(image, entry, context, device);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  const std::string library(library_name()), name(image.name), where = name_of(device);
  std::fprintf(stderr,
               "%s: the device image for %s cannot be loaded on %s (%s); compiling its source instead, which takes "
               "some seconds in every process. Build it with the oneAPI release in use to avoid that.\n",
               library.c_str(), name.c_str(), where.c_str(), reason.c_str());
  try {
    return compile(image, context, device);
  } catch (const std::exception& error) {
    fail(library, ": the device image for ", name, " cannot be loaded on ", where, " (", reason,
         "), and its source does not compile there; build the library with the oneAPI release in use. The compiler: ",
         error.what());
  }
}

// The kernels of one dtype on one device.
class Module {
 public:
  Module(const ::sycl::queue& queue, DType dtype)
      : context_(queue.get_context()), device_(queue.get_device()), image_(image_of(dtype)) {
    check_aspect(device_, dtype);
  }

  bool is_for(const ::sycl::queue& queue) const {
    return context_ == queue.get_context() && device_ == queue.get_device();
  }

  const ::sycl::kernel& kernel(std::string_view entry) {
    const auto found = kernels_.find(entry);
    if (found != kernels_.end()) return found->second;
    const std::string name(entry);
    return kernels_.emplace(name, find(name)).first->second;
  }

 private:
  ::sycl::context context_;
  ::sycl::device device_;
  const DeviceImage& image_;
  std::optional<Executable> whole_;  // of what does not come in parts
  std::map<std::string, ::sycl::kernel, std::less<>> kernels_;

  ::sycl::kernel find(const std::string& name) {
    if (whole_) return whole_->ext_oneapi_get_kernel(name);
    Executable bundle = load_or_compile(image_, name, context_, device_);
    if (!bundle.ext_oneapi_has_kernel(name)) return bundle.ext_oneapi_get_kernel(kSpirvPrefix + name);
    whole_ = bundle;
    return bundle.ext_oneapi_get_kernel(name);
  }
};

}  // namespace detail

// The free function `entry` of the device code, in the image for the dtype. It is loaded when a queue's device first
// needs it, or compiled, with a message, where it cannot be loaded. Throws where the device lacks the dtype.
inline ::sycl::kernel kernel(const ::sycl::queue& queue, DType dtype, std::string_view entry) {
  // Never destroyed: at exit the SYCL runtime may be gone before this library's static objects.
  static auto& mutex = *new std::mutex;
  static auto& modules = *new std::array<std::vector<detail::Module>, detail::kImageNames.size()>;
  const std::lock_guard lock(mutex);
  std::vector<detail::Module>& loaded = modules[index_of(dtype)];
  for (detail::Module& module : loaded) {
    if (module.is_for(queue)) return module.kernel(entry);
  }
  return loaded.emplace_back(queue, dtype).kernel(entry);
}

}  // namespace opwheel::xpu
