#define OPWHEEL_ISA bf16
#include "muladd/operators.h"
#include "opwheel/cpu/vectorized_loops.h"

OPWHEEL_CPU_LOOPS(muladd, MULADD_OPERATORS)
