#define MULADD_ISA avx512
#include "row_kernels.h"
