// Registers each operator's function.
#include "operators/attention.h"
#include "operators/attention_qkvpacked.h"
#include "operators/cache.h"
#include "operators/linear.h"
#include "operators/linear_cross_entropy.h"
#include "transformer_ops/operators.h"

OPWHEEL_DECLARE_KERNELS(transformer_ops, TRANSFORMER_OPS_KERNELS)

OPWHEEL_KERNELS(transformer_ops, CPU, m) {
  using namespace transformer_ops;
  using opwheel::implement;
  implement<op::rms_norm, cpu::rms_norm>(m);
  implement<op::rms_norm_out, cpu::rms_norm_out>(m);
  implement<op::rms_norm_backward, cpu::rms_norm_backward>(m);
  implement<op::fused_add_rms_norm, cpu::fused_add_rms_norm>(m);
  implement<op::fused_add_rms_norm_, cpu::fused_add_rms_norm_>(m);
  implement<op::fused_add_rms_norm_backward, cpu::fused_add_rms_norm_backward>(m);
  implement<op::layer_norm, cpu::layer_norm>(m);
  implement<op::layer_norm_backward, cpu::layer_norm_backward>(m);
  implement<op::swiglu, cpu::swiglu>(m);
  implement<op::swiglu_out, cpu::swiglu_out>(m);
  implement<op::swiglu_backward, cpu::swiglu_backward>(m);
  implement<op::geglu, cpu::geglu>(m);
  implement<op::geglu_backward, cpu::geglu_backward>(m);
  implement<op::softmax, cpu::softmax>(m);
  implement<op::softmax_backward, cpu::softmax_backward>(m);
  implement<op::log_softmax, cpu::log_softmax>(m);
  implement<op::log_softmax_backward, cpu::log_softmax_backward>(m);
  implement<op::attention, cpu::attention>(m);
  implement<op::attention_training, cpu::attention_training>(m);
  implement<op::attention_backward, cpu::attention_backward>(m);
  implement<op::attention_qkvpacked, cpu::attention_qkvpacked>(m);
  implement<op::attention_qkvpacked_training, cpu::attention_qkvpacked_training>(m);
  implement<op::attention_qkvpacked_backward, cpu::attention_qkvpacked_backward>(m);
  implement<op::rope, cpu::rope>(m);
  implement<op::cross_entropy_rows, cpu::cross_entropy_rows>(m);
  implement<op::cross_entropy_backward, cpu::cross_entropy_backward>(m);
  implement<op::fused_linear_cross_entropy, cpu::fused_linear_cross_entropy>(m);
  implement<op::fused_linear_cross_entropy_training, cpu::fused_linear_cross_entropy_training>(m);
  implement<op::linear_cross_entropy_rows, cpu::linear_cross_entropy_rows>(m);
  implement<op::linear_cross_entropy_backward, cpu::linear_cross_entropy_backward>(m);
  implement<op::scaled, cpu::scaled>(m);
  implement<op::scaled_, cpu::scaled_>(m);
  implement<op::linear, cpu::linear>(m);
  implement<op::linear_backward_input, cpu::linear_backward_input>(m);
  implement<op::linear_backward_weight, cpu::linear_backward_weight>(m);
  implement<op::linear_backward_bias, cpu::linear_backward_bias>(m);
  implement<op::quantize_rowwise, cpu::quantize_rowwise>(m);
  implement<op::dequantize_rowwise, cpu::dequantize_rowwise>(m);
  implement<op::reshape_and_cache, cpu::reshape_and_cache>(m);
}
