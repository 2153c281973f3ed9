// Calls a backend's C function on tensors that it refuses: 0 if it says so with a code. c_function SYMBOL LIBRARY...
#include <ATen/ops/zeros.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <cstdio>

#include "opwheel/load.h"

int main(int argc, char** argv) {
  opwheel::load("muladd", {argv + 2, argv + argc});
  using Function = AOTITorchError (*)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle*);
  const auto mul = *static_cast<Function*>(dlsym(RTLD_DEFAULT, argv[1]));
  at::Tensor numbers = at::zeros({3}, at::kLong);
  const AtenTensorHandle handle = torch::aot_inductor::tensor_pointer_to_tensor_handle(&numbers);
  AtenTensorHandle result = nullptr;
  const bool refused = mul(handle, handle, &result) != AOTI_TORCH_SUCCESS && result == nullptr;
  return refused && numbers.use_count() == 1 ? 0 : 1;
}
