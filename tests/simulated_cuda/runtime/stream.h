// What cudaStream_t and cudaEvent_t point to.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "runtime.h"

struct CUstream_st {
  explicit CUstream_st(int device) : device(device) {}

  const int device;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<simulated_cuda::Work> queue;  // the first one is being done
  bool has_worker = false;
  std::shared_ptr<simulated_cuda::Capture> capture;
};

namespace simulated_cuda {

// One point in the work of a stream.
struct Point {
  std::mutex mutex;
  std::condition_variable passed;
  bool is_passed = false;
  std::chrono::steady_clock::time_point time;

  void pass() {
    const std::lock_guard lock(mutex);
    time = std::chrono::steady_clock::now();
    is_passed = true;
    passed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    passed.wait(lock, [this] { return is_passed; });
  }
  bool query() {
    const std::lock_guard lock(mutex);
    return is_passed;
  }
};

// The stream that a handle means; 0 is the device's default stream.
CUstream_st& stream_of(cudaStream_t stream);

}  // namespace simulated_cuda

struct CUevent_st {
  int device;
  std::shared_ptr<simulated_cuda::Point> point;      // of the last record
  std::shared_ptr<simulated_cuda::Capture> capture;  // in which it was recorded
};
