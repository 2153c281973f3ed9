// The device's half: compiled once for each dtype, with -DDTYPE=float32 and so on.
#include "../rows.h"

namespace waves_xpu {

OPWHEEL_XPU_ROWS(softmax, Softmax, DTYPE)

}  // namespace waves_xpu
