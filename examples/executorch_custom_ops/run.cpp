// Runs a program of one input on 0, 1, 2 ... 5 and prints the result: run PROGRAM. Exit code 2 if it cannot run.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: run PROGRAM\n"), 2;
  executorch::extension::Module program(argv[1]);
  float numbers[] = {0, 1, 2, 3, 4, 5};
  const auto result = program.forward(executorch::extension::from_blob(numbers, {2, 3}));
  if (!result.ok()) {
    return std::fprintf(stderr, "%s: %s\n", argv[1], executorch::runtime::to_string(result.error())), 2;
  }
  const auto tensor = result->at(0).toTensor();
  for (ssize_t i = 0; i < tensor.numel(); ++i) std::printf("%g ", tensor.const_data_ptr<float>()[i]);
  std::printf("\n");
}
