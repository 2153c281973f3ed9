#include "in_place.h"

#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace opwheel::autograd {

namespace {

// The addresses of the first byte, and of the first one behind the last.
std::pair<uintptr_t, uintptr_t> byte_range(const at::Tensor& tensor) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  if (begin == 0 || tensor.numel() == 0) return {0, 0};
  int64_t reach = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) reach += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {begin, begin + (reach + 1) * tensor.element_size()};
}

}  // namespace

void check_may_be_overwritten(const Operator& op, const at::Tensor& target) {
  const bool is_view = target.is_view();
  if (target.requires_grad() && (target.is_leaf() || (is_view && target._base().is_leaf()))) {
    TORCH_CHECK(false, op.name, ": ", target.is_leaf() ? "a leaf variable" : "a view of a leaf variable",
                " that requires grad is being used in an in-place operation; use the functional variant, or "
                "torch.no_grad()");
  }
  const auto* view = torch::autograd::impl::get_view_autograd_meta(target);
  TORCH_CHECK(
      !is_view || view->get_creation_meta() == torch::autograd::CreationMeta::DEFAULT, op.name, ": '",
      op.schema().arguments()[op.written[0]].name(),
      "' is a view that does not allow in-place modification (one of several views from one call, or made under "
      "no_grad or in inference mode); clone it first");
}

void check_may_be_kept(const Operator& op, int argument, const at::Tensor& tensor) {
  TORCH_CHECK(!tensor.is_inference(), op.name, ": '", op.schema().arguments()[argument].name(),
              "' is an inference tensor, which cannot be kept for a gradient; clone it outside of "
              "torch.inference_mode()");
}

bool may_share_memory(const at::Tensor& target, const at::Tensor& given) {
  if (!target.has_storage() || !given.has_storage() || target.is_alias_of(given)) return true;
  const auto [begin, end] = byte_range(target);
  const auto [other_begin, other_end] = byte_range(given);
  return begin < other_end && other_begin < end;
}

}  // namespace opwheel::autograd
