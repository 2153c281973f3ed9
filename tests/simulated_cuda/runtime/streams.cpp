// Streams and events. Each stream has a thread of its own, from its first work on.
#include <array>
#include <thread>
#include <utility>

#include "stream.h"

namespace simulated_cuda {
namespace {

void work_on(CUstream_st& stream) {
  std::unique_lock lock(stream.mutex);
  for (;;) {
    stream.changed.wait(lock, [&] { return !stream.queue.empty(); });
    lock.unlock();
    stream.queue.front()();
    lock.lock();
    stream.queue.pop_front();
    stream.changed.notify_all();
  }
}

void enqueue(CUstream_st& stream, Work work) {
  const std::lock_guard lock(stream.mutex);
  // Threads and streams stay until the process ends.
  if (!std::exchange(stream.has_worker, true)) std::thread(work_on, std::ref(stream)).detach();
  stream.queue.push_back(std::move(work));
  stream.changed.notify_all();
}

// Those that were created; the default ones are not among them.
std::mutex mutex;
std::vector<cudaStream_t>& created() {
  static auto& all = *new std::vector<cudaStream_t>;
  return all;
}

cudaError_t create(cudaStream_t* stream) {
  const std::lock_guard lock(mutex);
  *stream = created().emplace_back(new CUstream_st(current_device()));
  return cudaSuccess;
}

}  // namespace

CUstream_st& stream_of(cudaStream_t stream) {
  static auto& defaults = *new std::array<CUstream_st, kDevices>{CUstream_st(0), CUstream_st(1)};
  return stream == nullptr ? defaults[current_device()] : *stream;
}

cudaError_t submit(cudaStream_t handle, Work work) {
  CUstream_st& stream = stream_of(handle);
  if (is_broken()) return result(cudaSuccess);
  // CUDA refuses a launch on a stream of a device that is not the current one.
  if (stream.device != current_device()) return result(cudaErrorInvalidResourceHandle);
  if (stream.capture) {
    stream.capture->nodes.push_back(std::move(work));
  } else {
    enqueue(stream, std::move(work));
  }
  return cudaSuccess;
}

void wait(cudaStream_t handle) {
  CUstream_st& stream = stream_of(handle);
  std::unique_lock lock(stream.mutex);
  stream.changed.wait(lock, [&] { return stream.queue.empty(); });
}

}  // namespace simulated_cuda

using namespace simulated_cuda;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return create(stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return create(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return create(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  CUstream_st& stream = stream_of(handle);
  if (stream.capture) return result(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(stream.mutex);
  return result(stream.queue.empty() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream_of(stream).capture) return result(cudaErrorStreamCaptureUnsupported);
  wait(stream);
  return result(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize() {
  if (capture_forbids()) return result(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(mutex);
  wait(nullptr);
  for (cudaStream_t stream : created()) {
    if (stream->device == current_device()) wait(stream);
  }
  return result(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  CUstream_st& stream = stream_of(handle);
  if (event->capture) {
    if (stream.capture && stream.capture != event->capture) return result(cudaErrorStreamCaptureMerge);
    if (!stream.capture) {
      stream.capture = event->capture;
      stream.capture->streams.push_back(&stream);
    }
    return cudaSuccess;
  }
  if (stream.capture) return result(event->point ? cudaErrorStreamCaptureIsolation : cudaSuccess);
  if (event->point) enqueue(stream, [point = event->point] { point->wait(); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return submit(stream, [=] { function(data); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st{current_device(), {}, {}};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
  CUstream_st& stream = stream_of(handle);
  if (event->device != stream.device) return result(cudaErrorInvalidResourceHandle);
  event->capture = stream.capture;
  if (stream.capture) return cudaSuccess;
  event->point = std::make_shared<Point>();
  enqueue(stream, [point = event->point] { point->pass(); });
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return result(event->point && !event->point->query() ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->point) event->point->wait();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!start->point || !end->point) return result(cudaErrorInvalidResourceHandle);
  if (!start->point->query() || !end->point->query()) return result(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end->point->time - start->point->time).count();
  return cudaSuccess;
}

}  // extern "C"
