// Two simulated XPUs. Each has a SYCL context of its own on the OpenCL CPU device, in-order queues as PyTorch's streams
// have, and device memory that only its own work may touch.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <sycl/sycl.hpp>

namespace simulated_xpu {

constexpr c10::DeviceType kType = c10::DeviceType::XPU;
constexpr c10::DeviceIndex kDevices = 2;

// ---- streams.cpp ----

c10::DeviceIndex current_device();
c10::DeviceIndex exchange_device(c10::DeviceIndex device);
c10::StreamId current_stream(c10::DeviceIndex device);
c10::StreamId exchange_stream(c10::DeviceIndex device, c10::StreamId stream);
c10::StreamId new_stream(c10::DeviceIndex device);
sycl::queue& queue(c10::DeviceIndex device, c10::StreamId stream);
inline sycl::queue& current_queue(c10::DeviceIndex device) { return queue(device, current_stream(device)); }
void synchronize(c10::DeviceIndex device);

// ---- memory.cpp ----

c10::Allocator& allocator();
// Makes the device's memory accessible, and that of the other one inaccessible: for the kernels of the first, which run
// in this process, and for the host. Called before anything is put on a queue.
void open_memory(c10::DeviceIndex device);
void record_use(const c10::DataPtr& data, c10::StreamId stream);

}  // namespace simulated_xpu
