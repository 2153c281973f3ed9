// The schema library: defines the catalogue's operators and nothing else, so that programs without Python find them.
#include "muladd/abi.h"
#include "muladd/operators.h"
#include "muladd/schema_library.h"

MULADD_SCHEMA_LIBRARY(muladd, muladd::op::Catalogue, MULADD_ABI_VERSION)
