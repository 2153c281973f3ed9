#define MULADD_ISA baseline
#include "row_kernels.h"
