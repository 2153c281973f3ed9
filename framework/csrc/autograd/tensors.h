// Tensors in arguments: a tensor, an optional one, a list, a list of optional ones.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

namespace opwheel::autograd {

// Calls function(tensor) for every tensor that is there.
template <class Function>
void for_each_tensor(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) function(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, function);
  }
}

// The value with function(tensor) in the place of every tensor that is there.
template <class Function>
c10::IValue with_tensors(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(function(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> changed;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      changed.push_back(tensor.defined() ? function(tensor) : tensor);
    }
    return changed;
  }
  if (value.isList()) {
    const c10::List<c10::IValue> list = value.toList();
    c10::impl::GenericList changed(list.elementType());
    for (const c10::IValue& element : value.toListRef()) changed.push_back(with_tensors(element, function));
    return changed;
  }
  return value;
}

}  // namespace opwheel::autograd
