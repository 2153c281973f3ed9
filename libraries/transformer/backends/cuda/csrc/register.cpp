// Registers each operator's function but those of attention, which another backend may have.
#include "operators/cache.h"
#include "operators/linear_cross_entropy.h"
#include "transformer_ops/operators.h"

OPWHEEL_DECLARE_KERNELS(transformer_ops, TRANSFORMER_OPS_KERNELS)

OPWHEEL_KERNELS(transformer_ops, CUDA, m) {
  using namespace transformer_ops;
  using opwheel::implement;
  implement<op::rms_norm, cuda::rms_norm>(m);
  implement<op::rms_norm_out, cuda::rms_norm_out>(m);
  implement<op::rms_norm_backward, cuda::rms_norm_backward>(m);
  implement<op::fused_add_rms_norm, cuda::fused_add_rms_norm>(m);
  implement<op::fused_add_rms_norm_, cuda::fused_add_rms_norm_>(m);
  implement<op::fused_add_rms_norm_backward, cuda::fused_add_rms_norm_backward>(m);
  implement<op::layer_norm, cuda::layer_norm>(m);
  implement<op::layer_norm_backward, cuda::layer_norm_backward>(m);
  implement<op::swiglu, cuda::swiglu>(m);
  implement<op::swiglu_out, cuda::swiglu_out>(m);
  implement<op::swiglu_backward, cuda::swiglu_backward>(m);
  implement<op::geglu, cuda::geglu>(m);
  implement<op::geglu_backward, cuda::geglu_backward>(m);
  implement<op::softmax, cuda::softmax>(m);
  implement<op::softmax_backward, cuda::softmax_backward>(m);
  implement<op::log_softmax, cuda::log_softmax>(m);
  implement<op::log_softmax_backward, cuda::log_softmax_backward>(m);
  implement<op::rope, cuda::rope>(m);
  implement<op::cross_entropy_rows, cuda::cross_entropy_rows>(m);
  implement<op::cross_entropy_backward, cuda::cross_entropy_backward>(m);
  implement<op::fused_linear_cross_entropy, cuda::fused_linear_cross_entropy>(m);
  implement<op::fused_linear_cross_entropy_training, cuda::fused_linear_cross_entropy_training>(m);
  implement<op::linear_cross_entropy_rows, cuda::linear_cross_entropy_rows>(m);
  implement<op::linear_cross_entropy_backward, cuda::linear_cross_entropy_backward>(m);
  implement<op::scaled, cuda::scaled>(m);
  implement<op::scaled_, cuda::scaled_>(m);
  implement<op::quantize_rowwise, cuda::quantize_rowwise>(m);
  implement<op::dequantize_rowwise, cuda::dequantize_rowwise>(m);
  implement<op::reshape_and_cache, cuda::reshape_and_cache>(m);
}
