// The schema library: defines the operators and nothing else, so that programs without Python find them.
#include "muladd/operators.h"
#include "opwheel/schema_library.h"

OPWHEEL_SCHEMA_LIBRARY(muladd, MULADD_OPERATORS)
