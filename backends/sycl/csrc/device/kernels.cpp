// The device code. It is compiled once for each dtype, with -DDTYPE=float32 and so on.
#include "muladd/operators.h"
#include "opwheel/xpu/device/elementwise.h"

OPWHEEL_XPU_KERNELS(muladd, MULADD_OPERATORS, DTYPE)
