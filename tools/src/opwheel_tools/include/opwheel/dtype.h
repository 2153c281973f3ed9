// The dtypes that kernels compute with. Plain, because code for every instruction set and every device includes it.
#pragma once

#include <cstdint>

namespace opwheel {

enum class DType : uint8_t { float16, bfloat16, float32, float64, unsupported };

}  // namespace opwheel
