// muladd's kernels for CUDA, for tensors of the CPU: they run on a simulated grid.
#include "grid.h"
#include "muladd/operators.h"
#include "opwheel/cuda/backend.h"

OPWHEEL_DECLARE_OPERATORS(muladd, MULADD_OPERATORS)
OPWHEEL_LIBRARY_IMPL(muladd, CPU, opwheel::cuda::Backend<muladd::cuda::Grid>)
