// Tensors in arguments: a tensor, an optional one, a list, a list of optional ones.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

namespace opwheel::autograd {

// Calls function(tensor, index) for every tensor that is there, with its index in a list.
template <class Function>
void for_each_tensor(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) function(value.toTensor(), 0);
  } else if (value.isList()) {
    int index = 0;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor() && element.toTensor().defined()) function(element.toTensor(), index);
      ++index;
    }
  }
}

// The value with function(tensor) in the place of every tensor that is there.
template <class Function>
c10::IValue with_tensors(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(function(value.toTensor())) : value;
  if (value.isList()) {
    const c10::List<c10::IValue> list = value.toList();
    c10::impl::GenericList changed(list.elementType());
    for (const c10::IValue& element : value.toListRef()) changed.push_back(with_tensors(element, function));
    return changed;
  }
  return value;
}

}  // namespace opwheel::autograd
