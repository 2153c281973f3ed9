#include "operators.h"
#include "opwheel/schema_library.h"

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves_cpp, WAVES_KERNELS)
