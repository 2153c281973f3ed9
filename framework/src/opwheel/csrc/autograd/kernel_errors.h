// What a kernel's exceptions become on their way to the caller.
#pragma once

#include <exception>

#include "operator.h"

namespace opwheel::autograd {

// Throws c10::TypeError if a tensor is expected and None was given, which the dispatcher passes on.
void check_is_tensor(const Operator& op, const c10::IValue& value, int argument);

// Throws what says more than the error of a call, if there is such: c10::OutOfMemoryError for the code of
// opwheel/detail/error.h, which the stable ABI cannot throw.
void raise_better(const std::exception& error);

}  // namespace opwheel::autograd
