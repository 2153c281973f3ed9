// What a kernel is told about its operands, besides their addresses. Host and device compile this file.
#pragma once

#include <cstdint>

namespace opwheel::xpu {

// Operands have fixed places in every kernel's argument list: two outputs, then three inputs. Unused ones are null.
constexpr int kOutputs = 2;
constexpr int kInputs = 3;
constexpr int kOperands = kOutputs + kInputs;

// Dimensions that one launch walks. A plan with more, which coalescing makes very rare, takes several launches. Kernel
// arguments share 2 KB on Intel GPUs.
constexpr int kWalkDims = 12;

// In the order of opwheel::DType.
enum class Code : uint8_t { float16, bfloat16, float32, float64 };

struct Walk {
  int64_t numel;
  int64_t sizes[kWalkDims];               // innermost first
  int64_t strides[kWalkDims][kOperands];  // in bytes; 0 where the operand is repeated
  int32_t ndim;
  Code codes[kOperands];
};
static_assert(sizeof(Walk) < 1024);

}  // namespace opwheel::xpu
