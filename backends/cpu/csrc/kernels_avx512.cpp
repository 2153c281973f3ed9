#define OPWHEEL_ISA avx512
#include "row_kernels.h"
