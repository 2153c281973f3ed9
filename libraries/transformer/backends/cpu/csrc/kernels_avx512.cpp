#define OPWHEEL_ISA avx512
#include "kernels.inc.h"
