#include "muladd/operators.h"
#include "opwheel/cpu/backend.h"

OPWHEEL_CPU_BACKEND(muladd, MULADD_OPERATORS)
