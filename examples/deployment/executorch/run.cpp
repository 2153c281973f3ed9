// Runs digits.pte with ExecuTorch's runtime: neither Python nor PyTorch.
//
//     run_digits digits.pte SAMPLES
//
// Exit codes: 0 the scores are those of eager PyTorch, 1 they are not, 2 something is missing.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <exception>

#include "../samples.h"

int main(int argc, char** argv) try {
  using executorch::extension::from_blob;
  if (argc != 3) throw std::runtime_error("usage: run_digits digits.pte SAMPLES");
  executorch::extension::Module model(argv[1]);
  samples::Samples data(argv[2]);
  bool equal = true;
  for (const int64_t n : {data.size(), int64_t{7}}) {
    const auto rows = static_cast<executorch::aten::SizesType>(n);
    const auto pixels = from_blob(data.pixels.data(), {rows, samples::kPixels});
    const auto side = from_blob(data.side.data(), {rows}, executorch::aten::ScalarType::Long);
    const auto result = model.forward({pixels, side});
    if (!result.ok()) {
      throw std::runtime_error(std::string("the program did not run: ") +
                               executorch::runtime::to_string(result.error()));
    }
    equal &= data.compare(result->at(0).toTensor().const_data_ptr<float>(), n);
  }
  return equal ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
