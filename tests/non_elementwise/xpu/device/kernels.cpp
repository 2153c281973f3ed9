// The device code: compiled once for each dtype, with -DDTYPE=float32 and so on.
#include "../rows.h"

namespace waves_xpu {

OPWHEEL_XPU_ROWS(rms_norm, RmsNorm, DTYPE)
OPWHEEL_XPU_ROWS(rms_norm_backward, RmsNormBackward, DTYPE)
OPWHEEL_XPU_ROWS(rms_norm_weight_backward, RmsNormWeightBackward, DTYPE)
OPWHEEL_XPU_ROWS(quantize_rowwise, QuantizeRowwise, DTYPE)
OPWHEEL_XPU_ROWS(softmax, Softmax, DTYPE)
OPWHEEL_XPU_ROWS(softmax_backward, SoftmaxBackward, DTYPE)

}  // namespace waves_xpu
