// Runs digits.pt2 without Python.
//
//     run_digits digits.pt2 SAMPLES [LIBRARY...]
//
// LIBRARY is what opwheel::load takes: cpu, or the path of a library. Exit codes: 0 the scores are those of eager
// PyTorch, 1 they are not, 2 something is missing.
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdlib>
#include <exception>

#include "../samples.h"
#include "opwheel/load.h"

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: run_digits digits.pt2 SAMPLES [LIBRARY...]");
  // A compiled model takes its inputs at their word unless it is told not to: a wrong dtype would be read as garbage.
  setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0);

  // 1. The operators and their kernels.
  opwheel::load("muladd", {argv + 3, argv + argc});

  // 2. The model.
  const c10::InferenceMode inference;
  torch::inductor::AOTIModelPackageLoader model(argv[1]);

  // 3. Two batch sizes: one package serves both.
  const samples::Samples data(argv[2]);
  bool equal = true;
  for (const int64_t n : {data.size(), int64_t{7}}) {
    const at::Tensor pixels = at::from_blob(const_cast<float*>(data.pixels.data()), {n, samples::kPixels}, at::kFloat);
    const at::Tensor side = at::from_blob(const_cast<int64_t*>(data.side.data()), {n}, at::kLong);
    const at::Tensor scores = model.run({pixels, side})[0].contiguous();
    equal &= data.compare(scores.const_data_ptr<float>(), n);
  }
  return equal ? 0 : 1;
} catch (const c10::Error& error) {
  std::fprintf(stderr, "%s\n", error.what_without_backtrace());
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
