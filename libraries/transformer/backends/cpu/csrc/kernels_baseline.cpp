#define OPWHEEL_ISA baseline
#include "kernels.inc.h"
