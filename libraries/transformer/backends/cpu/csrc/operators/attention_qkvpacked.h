// attention_qkvpacked: queries, keys and values are views of one tensor, and so are their gradients.
#pragma once

#include "attention.h"

namespace transformer_ops::cpu {

// Part 0, 1 or 2 of (batch, positions, 3, heads, length).
inline Tensor part_of(const Tensor& qkv, int64_t part) {
  const opwheel::TensorInfo info(qkv);
  const int64_t sizes[] = {info.sizes[0], info.sizes[1], info.sizes[3], info.sizes[4]};
  const int64_t strides[] = {info.strides[0], info.strides[1], info.strides[3], info.strides[4]};
  AtenTensorHandle handle = nullptr;
  OPWHEEL_SHIM(aoti_torch__reinterpret_tensor(qkv.handle(), 4, sizes, strides, part * info.strides[2], &handle));
  return Tensor(handle);
}

// The three parts, as tensors of the same memory.
class Parts {
 public:
  explicit Parts(const Tensor& qkv) {
    check(qkv, "qkv").on_cpu().dtype(opwheel::floating).ndim(5).size(2, 3);
    q_ = part_of(qkv, 0), k_ = part_of(qkv, 1), v_ = part_of(qkv, 2);
  }
  Qkv get() const { return {q_, k_, v_}; }

 private:
  Tensor q_, k_, v_;
};

inline Tensor attention_qkvpacked(const Tensor& qkv, bool is_causal, std::optional<double> scale,
                                  const OptionalTensor& cos, const OptionalTensor& sin) {
  const Parts parts(qkv);
  const auto [q, k, v] = parts.get();
  return attention_into(q, k, v, {is_causal, scale, cos, sin}, AttentionSizes(q, k, v), Tensor());
}

inline std::array<Tensor, 2> attention_qkvpacked_training(const Tensor& qkv, bool is_causal,
                                                          std::optional<double> scale, const OptionalTensor& cos,
                                                          const OptionalTensor& sin) {
  const Parts parts(qkv);
  const auto [q, k, v] = parts.get();
  return training_results(q, k, v, {is_causal, scale, cos, sin});
}

inline Tensor attention_qkvpacked_backward(const Tensor& grad_output, const Tensor& qkv, const Tensor& y,
                                           const Tensor& lse, bool is_causal, std::optional<double> scale,
                                           const OptionalTensor& cos, const OptionalTensor& sin) {
  const Parts parts(qkv);
  const auto [q, k, v] = parts.get();
  const AttentionSizes sizes(q, k, v);
  Tensor dqkv = new_empty_like(qkv);
  const Parts gradients(dqkv);
  attention_backward_into(gradients.get(), sizes, grad_output, parts.get(), y, lse, {is_causal, scale, cos, sin});
  return dqkv;
}

}  // namespace transformer_ops::cpu
