#include "opwheel/schema_library.h"
#include "operators.h"

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves_cpp, WAVES_KERNELS)
