// Devices and streams: a stream is an in-order queue. Hold and release let a test decide when a stream goes on.
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "device.h"

namespace simulated_xpu {
namespace {

constexpr c10::StreamId kStreams = 8;  // of each device; the first is the default one

struct Device {
  sycl::context context{sycl::device{sycl::cpu_selector_v}};
  std::vector<sycl::queue> queues;
  Device() {
    for (c10::StreamId i = 0; i < kStreams; ++i) {
      queues.emplace_back(context, context.get_devices()[0], sycl::property::queue::in_order{});
    }
  }
};

// Never destroyed: SYCL's own static objects may be gone first.
Device& device_of(c10::DeviceIndex device) {
  static auto& devices = *new std::array<Device, kDevices>;
  TORCH_CHECK(device >= 0 && device < kDevices, "there are ", int{kDevices}, " simulated XPUs, not one with index ",
              int{device});
  return devices[device];
}

thread_local c10::DeviceIndex this_device = 0;
thread_local std::array<c10::StreamId, kDevices> this_stream{};

}  // namespace

c10::DeviceIndex current_device() { return this_device; }

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  device_of(device);
  return std::exchange(this_device, device);
}

c10::StreamId current_stream(c10::DeviceIndex device) { return this_stream[device]; }

c10::StreamId exchange_stream(c10::DeviceIndex device, c10::StreamId stream) {
  return std::exchange(this_stream[device], stream);
}

c10::StreamId new_stream(c10::DeviceIndex device) {
  static std::array<std::atomic<c10::StreamId>, kDevices> next{};
  return 1 + next[device]++ % (kStreams - 1);
}

sycl::queue& queue(c10::DeviceIndex device, c10::StreamId stream) { return device_of(device).queues.at(stream); }

void synchronize(c10::DeviceIndex device) {
  for (sycl::queue& queue : device_of(device).queues) queue.wait_and_throw();
}

namespace {

struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool is_open = false;
};

}  // namespace
}  // namespace simulated_xpu

using namespace simulated_xpu;

// What is put on the stream from now on waits for the release of the gate, or until it has been held for so long.
extern "C" void* simulated_xpu_hold(int device, int64_t stream, double at_most_s) {
  const std::chrono::duration<double> seconds(at_most_s);
  auto* gate = new Gate;  // the task and the test both use it: it stays
  queue(static_cast<c10::DeviceIndex>(device), stream).submit([gate, seconds](sycl::handler& handler) {
    handler.host_task([gate, seconds] {
      std::unique_lock lock(gate->mutex);
      gate->opened.wait_for(lock, seconds, [gate] { return gate->is_open; });
    });
  });
  return gate;
}

extern "C" void simulated_xpu_release(void* handle) {
  auto* gate = static_cast<Gate*>(handle);
  const std::lock_guard lock(gate->mutex);
  gate->is_open = true;
  gate->opened.notify_all();
}
