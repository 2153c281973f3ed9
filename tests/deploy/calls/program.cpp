// program FILE...: loads the libraries of waves_deployed, and prints what two operators give for [[2.0]], or the error.
#include <cstdio>

#include "opwheel/kernels.h"
#include "opwheel/load.h"

using namespace opwheel;

void print(const char* name) {
  const Tensor x = new_empty({1, 1}, ScalarType::Float, Device{aoti_torch_device_type_cpu(), -1});
  *data<float>(x) = 2;
  StableIValue stack[] = {detail::Put<Tensor>::from(x)};
  if (torch_call_dispatcher(name, "", stack, TORCH_ABI_VERSION) != 0) {
    std::printf("%s\n", torch_exception_get_what_without_backtrace());
    return;
  }
  std::printf("%g\n", *data<float>(Tensor(torch::stable::detail::to<AtenTensorHandle>(stack[0]))));
}

int main(int argc, char** argv) {
  opwheel::load("waves_deployed", {argv + 1, argv + argc});
  print("waves_deployed::four");
  print("waves_deployed::square");
}
