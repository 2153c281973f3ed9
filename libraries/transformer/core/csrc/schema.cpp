// The schema library: defines the operators and nothing else, so that programs without Python find them.
#include "opwheel/schema_library.h"
#include "transformer_ops/operators.h"

OPWHEEL_KERNEL_SCHEMA_LIBRARY(transformer_ops, TRANSFORMER_OPS_KERNELS)
