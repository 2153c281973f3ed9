#define OPWHEEL_ISA avx2
#include "kernels.inc.h"
