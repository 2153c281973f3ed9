// Derivatives as text that is read without being parsed: one instruction a line. opwheel/dispatch/derivatives parses
// what libraries declare, and writes this.
// clang-format off
//
//     opwheel-derivatives 3
//     operator waves::norm
//     reference waves_reference::norm   an operator with the same schema that calls ATen's operators; not without Python
//     recorded waves::norm_training     is called in its place where a gradient is recorded; further results are dropped
//     fixed_result rstd                 it has no gradient
//     fixed_argument index              nor has this one
//     no_derivative                     a gradient that arrives is an error
//     random                            two calls with the same arguments may differ
//     gradient y                        a formula: expressions are put on a stack, and take their parts from it
//     argument x
//     argument weight
//     result rstd
//     call waves::norm_backward 3 rstd  three arguments by position, and one by its name
//     formula x 0 residual 0 weight 1   the expression's first value is the gradient of x and residual, the second ...
//     end
//
// clang-format on
// Further expressions: gradients (a list of all), none, bool 1, int -2, float 0.5, string tanh, list N, negate and
// conjugate, of one part, add, subtract, multiply and divide, of two, and what is known of a tensor, its part: property
// size 0 (of that dimension), sizes, numel, dim, scalar_type, device, layout. Such a property of an argument or a
// result is found out in the forward pass and kept in place of the tensor. A result that the schema has no name for is
// "result" or "result0" ... call_in_place is a call that may be one of the operator with an underscore behind its name:
// it takes the same, overwrites the first argument, a result that nothing else in the formulas names, and returns
// nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "operator.h"

namespace opwheel::autograd {

// No text describes no operator. Throws std::invalid_argument for another version, for what is not understood or not
// complete, and for formulas whose operators do not take their arguments.
std::vector<std::unique_ptr<Operator>> read_operators(const std::string& text);

}  // namespace opwheel::autograd
