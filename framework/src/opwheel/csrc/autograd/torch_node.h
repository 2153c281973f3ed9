// PyTorch's autograd nodes: what has other names in other minor releases.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <utility>

namespace opwheel::autograd {

// is_held_by: whether a tensor or a storage, which is referred to `uses` times, has these `count` references alone.
// Since PyTorch 2.13 its object in Python, which it keeps alive, has one as well: nobody else may have that object.

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
using NodePtr = c10::intrusive_ptr<torch::autograd::Node>;

template <class T>
bool is_held_by(size_t count, size_t uses, T& target) {
  return uses <= count || (uses == count + 1 && target.pyobj_slot()->has_unique_reference());
}

template <class T, class... Args>
c10::intrusive_ptr<T> make_node(Args&&... args) {
  return c10::make_intrusive<T>(std::forward<Args>(args)...);
}
#else
using NodePtr = std::shared_ptr<torch::autograd::Node>;

template <class T>
bool is_held_by(size_t count, size_t uses, T&) {
  return uses <= count;
}

// PyTorch's deleter releases long chains of nodes without recursion.
template <class T, class... Args>
std::shared_ptr<T> make_node(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), torch::autograd::deleteNode);
}
#endif

}  // namespace opwheel::autograd
