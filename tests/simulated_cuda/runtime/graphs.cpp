// Graphs: what a stream was given while it was being captured, done again by every launch.
#include <atomic>
#include <utility>

#include "stream.h"

struct CUgraph_st {
  std::vector<simulated_cuda::Work> nodes;
};
struct CUgraphExec_st {
  std::vector<simulated_cuda::Work> nodes;
};

namespace simulated_cuda {
namespace {

std::atomic<int> global_captures = 0;
thread_local int own_captures = 0;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaStreamCaptureStatus status_of(const CUstream_st& stream) {
  return stream.capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
}

}  // namespace

bool capture_forbids() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  return own_captures > 0 || (thread_mode == cudaStreamCaptureModeGlobal && global_captures > 0);
}

}  // namespace simulated_cuda

using namespace simulated_cuda;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  static std::atomic<std::uint64_t> captures = 0;
  CUstream_st& stream = stream_of(handle);
  // The default stream cannot be captured.
  if (handle == nullptr) return result(cudaErrorStreamCaptureUnsupported);
  if (stream.capture) return result(cudaErrorIllegalState);
  stream.capture = std::make_shared<Capture>(Capture{++captures, mode, {}, {&stream}});
  global_captures += mode == cudaStreamCaptureModeGlobal;
  own_captures += mode != cudaStreamCaptureModeRelaxed;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  CUstream_st& stream = stream_of(handle);
  if (!stream.capture) return result(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->streams.front() != &stream) return result(cudaErrorStreamCaptureUnmatched);
  for (cudaStream_t member : capture->streams) member->capture.reset();
  global_captures -= capture->mode == cudaStreamCaptureModeGlobal;
  own_captures -= capture->mode != cudaStreamCaptureModeRelaxed;
  *graph = new CUgraph_st{std::move(capture->nodes)};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = status_of(stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  const CUstream_st& stream = stream_of(handle);
  *status = status_of(stream);
  if (id != nullptr && stream.capture) *id = stream.capture->id;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return submit(stream, [nodes = executable->nodes] {
    for (const Work& node : nodes) node();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

}  // extern "C"
