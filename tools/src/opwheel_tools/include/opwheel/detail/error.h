// Error messages and their machine-readable codes. PyTorch turns the std::runtime_error into a Python RuntimeError with
// exactly this text. In front of some there is a code: code::out_of_memory and code::launch.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace opwheel {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, int64_t number) { text += std::to_string(number); }
template <class Number, std::enable_if_t<std::is_floating_point_v<Number>, int> = 0>
void append(std::string& text, Number number) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", static_cast<double>(number));
  text += digits;
}

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

// Calls what launches a kernel, or writes a result. Where it throws, a part of the result may have been written: the
// code says so, whatever the words.
template <class Body>
void launching(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    if (has_code(error.what())) throw;
    fail(code::launch, " ", error.what());
  }
}

namespace detail {

// The message with the operator's name in front of it, which stands behind code::launch. A message with another code
// stays as it is.
inline std::string with_operator(std::string_view name, std::string_view message) {
  std::string text;
  if (message.starts_with(code::launch)) {
    text = std::string(code::launch) + " ";
    message.remove_prefix(code::launch.size());
    if (message.starts_with(' ')) message.remove_prefix(1);
  } else if (has_code(message)) {
    return std::string(message);
  }
  if (!message.starts_with(name)) text += std::string(name) + ": ";
  return text += message;
}

}  // namespace detail

inline std::string memory_wanted(int64_t bytes, const std::string& device) {
  return "(bytes=" + std::to_string(bytes) + " device=" + device + ")";
}

// The C shim reports failure by a code and, before torch 2.13, keeps the reason to itself. Kernels validate their
// inputs first, so what arrives here is a failed allocation or a defect.
#define OPWHEEL_SHIM(call)                                                                                  \
  do {                                                                                                      \
    if ((call) != 0) {                                                                                      \
      ::opwheel::fail("PyTorch refused the call ", #call,                                                   \
                      "; most often memory is out: free some, or report it with what PyTorch has printed"); \
    }                                                                                                       \
  } while (false)

}  // namespace opwheel
