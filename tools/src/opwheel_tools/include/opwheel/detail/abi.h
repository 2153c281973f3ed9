// What a library is built with, written into its file as ELF notes, so that the registry can read it before it opens
// the file: the SDK's number and the schemas of the operators. The number changes when the boxing convention or the
// meaning of a header of the SDK changes in a way that an already built library would get wrong. Included by
// whatever registers operators or kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#define OPWHEEL_ABI_VERSION 1

namespace opwheel {
namespace {

struct AbiNote {
  uint32_t name_size = sizeof name;
  uint32_t value_size = sizeof value;
  uint32_t type = 1;
  char name[8] = "opwheel";
  int32_t value = OPWHEEL_ABI_VERSION;
};

__attribute__((used, section(".note.opwheel"), aligned(4))) constexpr AbiNote abi_note;

// What a schema is noted for.
enum class Noted : uint32_t { kernel = 2, callee = 3 };

// Arguments arrive as 64 bits each, which a kernel reads as what the schema was when it was compiled. What kernels call
// (opwheel/call.h) is noted in the same way.
template <std::size_t length>
struct SchemaNote {
  uint32_t name_size = sizeof name;
  uint32_t value_size = length;
  Noted type;
  char name[8] = "opwheel";
  char value[(length + 3) / 4 * 4] = {};

  constexpr SchemaNote(Noted noted, const char (&text)[length]) : type(noted) {
    for (std::size_t i = 0; i < length; ++i) value[i] = text[i];
  }
};

}  // namespace
}  // namespace opwheel

#define OPWHEEL_DETAIL_NOTE(symbol, noted, text)                                                                   \
  __attribute__((used, section(".note.opwheel"), aligned(4))) static constexpr ::opwheel::SchemaNote<sizeof(text)> \
      symbol{::opwheel::Noted::noted, text};

// One for each row of a library's list (opwheel/operators.h).
#undef OPWHEEL_DETAIL_SCHEMA_NOTE
#define OPWHEEL_DETAIL_SCHEMA_NOTE(identifier, text) OPWHEEL_DETAIL_NOTE(identifier##_note, kernel, text)
