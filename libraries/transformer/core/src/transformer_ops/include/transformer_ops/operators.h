// The operators: a row each, with its schema (opwheel/operators.h). Nothing else lists them: the schema library and
// every backend read this list.
#pragma once

#include "opwheel/operators.h"

#define TRANSFORMER_OPS_KERNELS(KERNEL)                                                                               \
  KERNEL(rms_norm,                                                                                                    \
         "rms_norm(Tensor x, Tensor? weight=None, float eps=1e-06, float offset=0., str casting_mode='llama') -> "    \
         "Tensor")                                                                                                    \
  KERNEL(rms_norm_out,                                                                                                \
         "rms_norm.out(Tensor x, Tensor? weight=None, float eps=1e-06, float offset=0., "                             \
         "str casting_mode='llama', *, Tensor(a!) out) -> ()")                                                        \
  KERNEL(rms_norm_backward,                                                                                           \
         "rms_norm_backward(Tensor grad_output, Tensor x, Tensor? weight, float eps, float offset, "                  \
         "str casting_mode) -> (Tensor, Tensor)")                                                                     \
  KERNEL(fused_add_rms_norm,                                                                                          \
         "fused_add_rms_norm(Tensor x, Tensor residual, Tensor? weight=None, float eps=1e-06, float offset=0., "      \
         "str casting_mode='llama') -> (Tensor y, Tensor sum)")                                                       \
  KERNEL(fused_add_rms_norm_,                                                                                         \
         "fused_add_rms_norm_(Tensor(a!) x, Tensor(b!) residual, Tensor? weight=None, float eps=1e-06, "              \
         "float offset=0., str casting_mode='llama') -> ()")                                                          \
  KERNEL(fused_add_rms_norm_backward,                                                                                 \
         "fused_add_rms_norm_backward(Tensor grad_y, Tensor grad_sum, Tensor sum, Tensor? weight, float eps, "        \
         "float offset, str casting_mode) -> (Tensor, Tensor)")                                                       \
  KERNEL(layer_norm, "layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor")       \
  KERNEL(layer_norm_backward,                                                                                         \
         "layer_norm_backward(Tensor grad_output, Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor, Tensor)")  \
  KERNEL(swiglu, "swiglu(Tensor a, Tensor b) -> Tensor")                                                              \
  KERNEL(swiglu_out, "swiglu.out(Tensor a, Tensor b, *, Tensor(a!) out) -> ()")                                       \
  KERNEL(swiglu_backward, "swiglu_backward(Tensor grad_output, Tensor a, Tensor b) -> (Tensor, Tensor)")              \
  KERNEL(geglu, "geglu(Tensor a, Tensor b, str approximate='tanh') -> Tensor")                                        \
  KERNEL(geglu_backward,                                                                                              \
         "geglu_backward(Tensor grad_output, Tensor a, Tensor b, str approximate) -> (Tensor, Tensor)")               \
  KERNEL(softmax, "softmax(Tensor x) -> Tensor")                                                                      \
  KERNEL(softmax_backward, "softmax_backward(Tensor grad_output, Tensor y) -> Tensor")                                \
  KERNEL(log_softmax, "log_softmax(Tensor x) -> Tensor")                                                              \
  KERNEL(log_softmax_backward, "log_softmax_backward(Tensor grad_output, Tensor y) -> Tensor")                        \
  KERNEL(attention,                                                                                                   \
         "attention(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None, Tensor? cos=None, "        \
         "Tensor? sin=None, Tensor? position_ids=None, Tensor? attn_mask=None, int? window_size=None, "               \
         "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None) -> Tensor")                                           \
  KERNEL(attention_training,                                                                                          \
         "attention_training(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None, "                 \
         "Tensor? cos=None, Tensor? sin=None, Tensor? position_ids=None, Tensor? attn_mask=None, "                    \
         "int? window_size=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None) -> (Tensor y, Tensor lse)")    \
  KERNEL(attention_backward,                                                                                          \
         "attention_backward(Tensor grad_output, Tensor q, Tensor k, Tensor v, Tensor y, Tensor lse, "                \
         "bool is_causal, float? scale, Tensor? cos, Tensor? sin, Tensor? position_ids, Tensor? attn_mask=None, "     \
         "int? window_size=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None) -> (Tensor, Tensor, Tensor)")  \
  KERNEL(attention_qkvpacked,                                                                                         \
         "attention_qkvpacked(Tensor qkv, bool is_causal=False, float? scale=None, Tensor? cos=None, "                \
         "Tensor? sin=None) -> Tensor")                                                                               \
  KERNEL(attention_qkvpacked_training,                                                                                \
         "attention_qkvpacked_training(Tensor qkv, bool is_causal=False, float? scale=None, Tensor? cos=None, "       \
         "Tensor? sin=None) -> (Tensor y, Tensor lse)")                                                               \
  KERNEL(attention_qkvpacked_backward,                                                                                \
         "attention_qkvpacked_backward(Tensor grad_output, Tensor qkv, Tensor y, Tensor lse, bool is_causal, "        \
         "float? scale, Tensor? cos, Tensor? sin) -> Tensor")                                                         \
  KERNEL(rope,                                                                                                        \
         "rope(Tensor q, Tensor k, Tensor cos, Tensor sin, Tensor? position_ids=None, int unsqueeze_dim=1, "          \
         "bool interleaved=False, int? rotary_dim=None) -> (Tensor, Tensor)")                                         \
  KERNEL(cross_entropy_rows,                                                                                          \
         "cross_entropy_rows(Tensor input, Tensor target, Tensor? weight, int ignore_index, float lse_square_scale, " \
         "float label_smoothing, float softcap, str reduction='none', Tensor? token_weight=None) -> "                 \
         "(Tensor loss, Tensor kept)")                                                                                \
  KERNEL(cross_entropy_backward,                                                                                      \
         "cross_entropy_backward(Tensor grad_loss, Tensor input, Tensor target, Tensor? weight, Tensor kept, "        \
         "int ignore_index, float lse_square_scale, float label_smoothing, float softcap, "                           \
         "str reduction, Tensor? token_weight) -> Tensor")                                                            \
  KERNEL(quantize_rowwise, "quantize_rowwise(Tensor x) -> (Tensor q, Tensor scale)")                                  \
  KERNEL(dequantize_rowwise, "dequantize_rowwise(Tensor q, Tensor scale, *, ScalarType dtype=float) -> Tensor")       \
  KERNEL(reshape_and_cache,                                                                                           \
         "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "                 \
         "Tensor slot_mapping) -> ()")                                                                                \
  KERNEL(fused_linear_cross_entropy,                                                                                  \
         "fused_linear_cross_entropy(Tensor input, Tensor weight, Tensor target, Tensor? bias=None, "                 \
         "int ignore_index=-100, float lse_square_scale=0., float label_smoothing=0., str reduction='mean', "         \
         "float softcap=0., Tensor? class_weight=None, Tensor? token_weight=None) -> Tensor")                         \
  KERNEL(fused_linear_cross_entropy_training,                                                                         \
         "fused_linear_cross_entropy_training(Tensor input, Tensor weight, Tensor target, Tensor? bias=None, "        \
         "int ignore_index=-100, float lse_square_scale=0., float label_smoothing=0., str reduction='mean', "         \
         "float softcap=0., Tensor? class_weight=None, Tensor? token_weight=None) -> "                                \
         "(Tensor loss, Tensor d_input, Tensor d_weight, Tensor d_bias, Tensor factor)")                              \
  KERNEL(linear_cross_entropy_rows,                                                                                   \
         "linear_cross_entropy_rows(Tensor input, Tensor weight, Tensor target, Tensor? bias, int ignore_index, "     \
         "float lse_square_scale, float label_smoothing, float softcap, Tensor? class_weight, "                       \
         "Tensor? token_weight) -> (Tensor loss, Tensor kept)")                                                       \
  KERNEL(linear_cross_entropy_backward,                                                                               \
         "linear_cross_entropy_backward(Tensor grad_loss, Tensor input, Tensor weight, Tensor target, Tensor? bias, " \
         "Tensor kept, int ignore_index, float lse_square_scale, float label_smoothing, float softcap, "              \
         "Tensor? class_weight, Tensor? token_weight) -> (Tensor, Tensor, Tensor)")                                   \
  KERNEL(scaled, "scaled(Tensor x, Tensor factor, Tensor like) -> Tensor")                                            \
  KERNEL(scaled_, "scaled_(Tensor(a!) x, Tensor factor, Tensor like) -> ()")                                          \
  KERNEL(linear, "linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor")                                      \
  KERNEL(linear_backward_input, "linear_backward_input(Tensor grad_output, Tensor weight) -> Tensor")                 \
  KERNEL(linear_backward_weight, "linear_backward_weight(Tensor grad_output, Tensor x) -> Tensor")                    \
  KERNEL(linear_backward_bias, "linear_backward_bias(Tensor grad_output) -> Tensor")
