// Runs the digits model on float64 pixels, and prints what it says: wrong_dtype digits.pt2 LIBRARY...
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <exception>

#include "opwheel/load.h"

int main(int argc, char** argv) try {
  opwheel::load("muladd", {argv + 2, argv + argc});
  const c10::InferenceMode inference;
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  model.run({at::zeros({3, 64}, at::kDouble), at::zeros({3}, at::kLong)});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
