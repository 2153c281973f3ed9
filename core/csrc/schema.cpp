// The schema library: defines the catalogue's operators and nothing else, so that programs without Python find them.
#include "opwheel/abi.h"
#include "muladd/operators.h"
#include "opwheel/schema_library.h"

OPWHEEL_SCHEMA_LIBRARY(muladd, muladd::op::Catalogue, OPWHEEL_ABI_VERSION)
