// The number a library is built with, written into its file as an ELF note, so that the registry can read it before it
// opens the file. It changes when the boxing convention or the meaning of a header in this folder changes in a way that
// an already built library would get wrong. Included by whatever registers operators or kernels.
#pragma once

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

}  // namespace
}  // namespace opwheel
