// Device code that the build embedded into this library (opwheel_tools.build.SyclLibrary), and its source. The build
// generates the definitions.
#pragma once

#include <span>
#include <string_view>

namespace opwheel {

struct DeviceImage {
  std::string_view name;
  std::span<const char> bytes;
  std::span<const char* const> options;  // that the source was compiled with
};

std::span<const DeviceImage> device_images();

// One self-contained file, for a runtime that cannot load an image.
std::string_view device_source();

// Of this library's file, for messages.
std::string_view library_name();

}  // namespace opwheel
