#define OPWHEEL_ISA avx512
#include "muladd/operators.h"
#include "opwheel/cpu/vectorized_loops.h"

OPWHEEL_CPU_LOOPS(muladd, MULADD_OPERATORS)
