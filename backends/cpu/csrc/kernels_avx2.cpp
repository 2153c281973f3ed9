#define OPWHEEL_ISA avx2
#include "row_kernels.h"
