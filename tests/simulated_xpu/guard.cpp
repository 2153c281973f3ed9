// What PyTorch asks a device type for: devices, streams, events (c10's guard) and whether it is there (ATen's hooks).
#include <ATen/detail/XPUHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <vector>

#include "device.h"

namespace simulated_xpu {
namespace {

c10::Stream stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
}

bool gives_default_queue = false;
bool gives_no_queue = false;

sycl::queue& queue_of(const c10::Stream& stream) { return queue(stream.device_index(), stream.id()); }

// A point on a queue that comes after everything before it, and after the event if there is one. SYCL's barriers would
// hold up the caller where they wait for a task of the host, such as a test's gate.
sycl::event mark(sycl::queue& queue, const std::vector<sycl::event>& after) {
  return queue.submit([&after](sycl::handler& handler) {
    handler.depends_on(after);
    handler.host_task([] {});
  });
}

}  // namespace

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;

  c10::DeviceType type() const override { return kType; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  c10::Device getDevice() const override { return {kType, current_device()}; }
  c10::Device exchangeDevice(c10::Device device) const override { return {kType, exchange_device(device.index())}; }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { exchange_device(device.index()); }

  c10::Stream getStream(c10::Device device) const override {
    return stream(device.index(), current_stream(device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device.index(), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    const c10::DeviceIndex index = device.has_index() ? device.index() : current_device();
    return stream(index, new_stream(index));
  }
  c10::Stream exchangeStream(c10::Stream wanted) const override {
    return stream(wanted.device_index(), exchange_stream(wanted.device_index(), wanted.id()));
  }
  // Who asks for the queue is about to launch on it.
  void* getStreamNativeHandle(const c10::Stream wanted) const override {
    TORCH_CHECK(!gives_no_queue, "the simulated XPUs give no queue away");
    open_memory(wanted.device_index());
    return gives_default_queue ? &queue(wanted.device_index(), 0) : &queue_of(wanted);
  }
  bool queryStream(const c10::Stream& stream) const override { return queue_of(stream).ext_oneapi_empty(); }
  void synchronizeStream(const c10::Stream& stream) const override { queue_of(stream).wait_and_throw(); }
  void synchronizeDevice(const c10::DeviceIndex device) const override { synchronize(device); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_use(data, stream.id());
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    delete static_cast<sycl::event*>(*event);
    *event = new sycl::event(mark(queue_of(stream), {}));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) mark(queue_of(stream), {*static_cast<sycl::event*>(event)});
  }
  bool queryEvent(void* event) const override {
    using sycl::info::event_command_status;
    using sycl::info::event::command_execution_status;
    return event == nullptr ||
           static_cast<sycl::event*>(event)->get_info<command_execution_status>() == event_command_status::complete;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) static_cast<sycl::event*>(event)->wait_and_throw();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<sycl::event*>(event);
  }
};

struct Hooks final : at::XPUHooksInterface {
  void init() const override {}
  bool hasXPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex getNumGPUs() const override { return kDevices; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex current_device() const override { return simulated_xpu::current_device(); }
  c10::DeviceIndex getCurrentDevice() const override { return simulated_xpu::current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? simulated_xpu::current_device() : exchange_device(device);
  }
  void deviceSynchronize(c10::DeviceIndex device) const override { synchronize(device); }
};

}  // namespace simulated_xpu

namespace at {
using simulated_xpu::Hooks;
C10_REGISTER_CLASS(XPUHooksRegistry, XPUHooks, Hooks)
}  // namespace at

namespace c10::impl {
using simulated_xpu::Guard;
C10_REGISTER_GUARD_IMPL(XPU, Guard)
}  // namespace c10::impl

extern "C" void simulated_xpu_default_queue_for_every_stream(bool on) { simulated_xpu::gives_default_queue = on; }
extern "C" void simulated_xpu_no_queue(bool on) { simulated_xpu::gives_no_queue = on; }
