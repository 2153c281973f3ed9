// Errors with words. PyTorch turns the std::runtime_error into a Python RuntimeError with exactly this text.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace opwheel {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, int64_t number) { text += std::to_string(number); }

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  throw std::runtime_error(text);
}

// The C shim reports failure by a code and, before torch 2.13, keeps the reason to itself. Kernels validate their
// inputs first, so what arrives here is a failed allocation or a defect.
#define OPWHEEL_SHIM(call)                                                                     \
  do {                                                                                         \
    if ((call) != 0) ::opwheel::fail("PyTorch refused the call ", #call, " (out of memory?)"); \
  } while (false)

}  // namespace opwheel
