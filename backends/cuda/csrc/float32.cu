#include "muladd/operators.h"
#include "opwheel/cuda/enqueue.cuh"

OPWHEEL_CUDA_KERNELS(muladd, MULADD_OPERATORS, float)
