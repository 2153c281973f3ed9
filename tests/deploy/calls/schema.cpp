#include "operators.h"
#include "opwheel/schema_library.h"

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves_deployed, WAVES_KERNELS)

// As opwheel_tools.build writes it for a library that declares none.
extern "C" __attribute__((visibility("default"))) const char* waves_deployed_derivatives() { return ""; }
