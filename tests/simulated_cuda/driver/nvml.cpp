// libnvidia-ml.so.1: what there is, said without CUDA.
#include "../runtime/devices.h"

using namespace simulated_cuda;

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlInit() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = CUDART_VERSION;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kDevices;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = const_cast<Model*>(&kModels[index]);
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
  *device = nullptr;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  const Model& model = *static_cast<const Model*>(device);
  *major = model.capability[0];
  *minor = model.capability[1];
  return 0;
}

}  // extern "C"
