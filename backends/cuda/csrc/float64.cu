#include "enqueue.cuh"

MULADD_CUDA_KERNELS(double)
