// Finds a kernel in an image of SPIR-V: modules one after another, each with one kernel, so that a first call waits for
// the driver to compile no more than it needs.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace opwheel::xpu::spirv {

constexpr uint32_t kMagic = 0x07230203;  // of a module's first word; no instruction looks like it
constexpr std::size_t kHeader = 5;       // words
constexpr uint32_t kEntryPoint = 15;     // OpEntryPoint: execution model, function, name

using Words = std::span<const uint32_t>;

inline bool is_spirv(std::span<const char> bytes) {
  return bytes.size() > sizeof kMagic && std::memcmp(bytes.data(), &kMagic, sizeof kMagic) == 0;
}

// Words of the instruction at the front: the upper half of its first word.
inline std::size_t length(Words rest) { return rest[0] == kMagic ? kHeader : rest[0] >> 16; }

inline bool is_entry(Words instruction, std::string_view name) {
  constexpr std::size_t name_at = 3;
  if ((instruction[0] & 0xffff) != kEntryPoint || instruction.size() <= name_at) return false;
  const auto text = std::as_bytes(instruction.subspan(name_at));
  return text.size() > name.size() && std::memcmp(text.data(), name.data(), name.size()) == 0 &&
         text[name.size()] == std::byte{0};
}

// The module with the entry point; empty if there is none, or if this is no sound SPIR-V.
inline std::span<const std::byte> module_with(std::span<const char> image, std::string_view name) {
  const Words words(reinterpret_cast<const uint32_t*>(image.data()), image.size() / sizeof(uint32_t));
  std::size_t start = 0;
  bool has_entry = false;
  for (std::size_t at = 0; at < words.size();) {
    const Words rest = words.subspan(at);
    if (rest[0] == kMagic && has_entry) return std::as_bytes(words.subspan(start, at - start));
    if (rest[0] == kMagic) start = at;
    if (length(rest) == 0 || length(rest) > rest.size()) return {};
    has_entry |= is_entry(rest.first(length(rest)), name);
    at += length(rest);
  }
  return has_entry ? std::as_bytes(words.subspan(start)) : std::span<const std::byte>();
}

}  // namespace opwheel::xpu::spirv
