// The core of a library whose schemas are the lines of the variable SCHEMAS: what it has grown to since its backend was
// built (kernels.cpp).
#include <torch/csrc/stable/library.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "opwheel/kernels.h"

namespace {

const std::vector<std::string>& lines() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> read;
    std::istringstream text(std::getenv("SCHEMAS"));
    for (std::string line; std::getline(text, line);) read.push_back(line);
    return read;
  }();
  return all;
}

}  // namespace

STABLE_TORCH_LIBRARY(waves_grown, m) {
  for (const std::string& line : lines()) m.def(line.c_str());
}

extern "C" __attribute__((visibility("default"))) const char* const* waves_grown_schemas() {
  static std::vector<const char*> texts;
  texts.clear();
  for (const std::string& line : lines()) texts.push_back(line.c_str());
  texts.push_back(nullptr);
  return texts.data();
}
