// The kernels that are registered for an operator.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include "node.h"
#include "operator.h"

namespace opwheel::autograd {

// The tensors among the arguments of a call, in their order: pointers to where the arguments have them.
struct GivenTensor {
  const at::Tensor* tensor;
  Output output;
};
using Given = c10::SmallVector<GivenTensor, 4>;

// At the Autograd key: decides which derivative rules apply to a call.
//
// 1. Under a torch.func transform, or when an input carries a forward-mode tangent, the reference is called, and the
//    rules of ATen's operators apply: reverse, forward, any order, any composition.
// 2. Otherwise, when an input requires grad, a node is recorded that computes the operator's formulas; or the operator
//    for training is called, which records its own.
// 3. Otherwise the backend's kernel runs and nothing is recorded.
class AutogradKernel : public c10::OperatorKernel {
 public:
  explicit AutogradKernel(const Operator& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack);

 private:
  void transformed(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack, bool is_recorded);
  void call_recorded(std::vector<c10::IValue>& stack);
  void record(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack, const Given& given, uint64_t needed);
  void record_in_place(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack, const Given& given, const Plan& plan);
  void below(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack);
  void below_without_gradients(c10::DispatchKeySet keys, std::vector<c10::IValue>& stack);

  const Operator& op_;
};

// At the ADInplaceOrView key: counts the modification, so that a stale saved tensor is noticed.
class VersionKernel : public c10::OperatorKernel {
 public:
  explicit VersionKernel(const Operator& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack);

 private:
  const Operator& op_;
};

}  // namespace opwheel::autograd
