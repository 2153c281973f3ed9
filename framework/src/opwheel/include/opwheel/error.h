// Errors with words. PyTorch turns the std::runtime_error into a Python RuntimeError with exactly this text. In front
// of some there is a code: code::out_of_memory and code::launch.
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

// Codes stand in front of messages that the Python side acts on. The words behind them are free: nothing reads
// them. A call that failed with a code is not made again. opwheel/dispatch/kernel_errors.py has the same codes.
namespace code {

// There is no memory. The message ends as memory_wanted() says, so that Python can raise PyTorch's own error.
inline constexpr std::string_view out_of_memory = "[OPWHEEL:OOM]";
// The kernel was not launched, or not all of it: a part of the result may have been written.
inline constexpr std::string_view launch = "[OPWHEEL:LAUNCH]";

}  // namespace code

inline bool has_code(std::string_view message) { return message.starts_with("[OPWHEEL:"); }

inline std::string memory_wanted(int64_t bytes, const std::string& device) {
  return "(bytes=" + std::to_string(bytes) + " device=" + device + ")";
}

// The C shim reports failure by a code and, before torch 2.13, keeps the reason to itself. Kernels validate their
// inputs first, so what arrives here is a failed allocation or a defect.
#define OPWHEEL_SHIM(call)                                                                     \
  do {                                                                                         \
    if ((call) != 0) ::opwheel::fail("PyTorch refused the call ", #call, " (out of memory?)"); \
  } while (false)

}  // namespace opwheel
