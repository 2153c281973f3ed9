#include "muladd/operators.h"
#include "opwheel/xpu/backend.h"

OPWHEEL_XPU_BACKEND(muladd, MULADD_OPERATORS)
