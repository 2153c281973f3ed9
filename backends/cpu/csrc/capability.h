// What this machine can do, asked once per process.
#pragma once

#include <cstdint>

#include "row.h"

namespace muladd::cpu {

// The kernels for the best instruction set that the processor and the operating system support.
// MULADD_CPU_CAPABILITY=baseline|avx2|avx512 chooses a lower one; what is not supported is ignored.
ChooseRows choose_rows();

// Size of the last-level cache in bytes; a usual size where the system does not tell.
int64_t last_level_cache();

}  // namespace muladd::cpu
