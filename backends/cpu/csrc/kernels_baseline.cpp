#define OPWHEEL_ISA baseline
#include "row_kernels.h"
