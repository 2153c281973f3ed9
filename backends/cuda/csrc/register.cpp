#include "muladd/operators.h"
#include "opwheel/cuda/backend.h"

OPWHEEL_CUDA_BACKEND(muladd, MULADD_OPERATORS)
