// The number a backend is built against. It changes when the operator catalogue, the boxing convention or the meaning
// of a header in this folder changes in a way that an already built backend would get wrong.
#pragma once

#define OPWHEEL_ABI_VERSION 1
