#define OPWHEEL_ISA bf16
#include "kernels.inc.h"
