#define MULADD_ISA avx2
#include "row_kernels.h"
