// Reads how much memory a kernel did not get from its error message: memory_wanted() in the SDK's
// opwheel/detail/error.h.
//
// opwheel/dispatch/kernel_errors.py reads the same. Both are needed: C++ programs have this one and no Python, and
// where there is no native library for the installed PyTorch, Python has that one alone.
// tests/toolchain/test_kernel_errors.py holds both to one table.
#pragma once

#include <cstdint>
#include <optional>
#include <regex>
#include <string>

namespace opwheel::autograd {

struct WantedMemory {
  int64_t bytes;
  std::string device_type;  // "cuda"
  std::string index;        // ":1", or empty
};

inline std::optional<WantedMemory> wanted_memory(const std::string& message) {
  static const std::regex wanted(R"(\(bytes=(\d{1,18}) device=(\w+)((?::\d+)?)\)\s*$)");
  std::smatch found;
  if (!message.starts_with("[OPWHEEL:OOM]") || !std::regex_search(message, found, wanted)) return std::nullopt;
  return WantedMemory{std::stoll(found[1].str()), found[2].str(), found[3].str()};
}

}  // namespace opwheel::autograd
