// The interface between the element-wise plan and the loops, which are compiled once for each instruction set.
//
// A loop computes two dimensions of a plan in one call, as PyTorch's TensorIterator has it: `size` elements along the
// innermost dimension, `outer_size` times along the next one, because a row may be as short as the channels of an
// image.
//
// This header, and the others that the loops include, are compiled with different flags in one library. An inline
// function with external linkage would then exist in several versions, of which the linker keeps any one: a program
// could run AVX-512 instructions on a processor without them. So there are plain types here and no such functions.
#pragma once

#include <cstdint>

#include "opwheel/detail/dtype.h"
#include "opwheel/functor.h"

namespace opwheel::cpu {

struct LoopSpec {
  // Of each operand, results first, in bytes; 0 where one element serves for all.
  int64_t strides[kMaxOperands];        // from one element to the next
  int64_t outer_strides[kMaxOperands];  // from one row to the next
  DType dtypes[kMaxOperands];
  double parameters[kMaxParameters];  // of the functor, such as the c of a * b + c
  bool stream;                        // write the results with non-temporal stores: they will not be needed soon
};

// size >= 1 elements in each of outer_size >= 1 rows; data[i] is operand i's first element. A result may be the very
// elements of an input (in place), never a shifted view of them.
using Loop2d = void (*)(const LoopSpec& spec, char* const* data, int64_t size, int64_t outer_size);

// The fastest loop of one operator for the operands. `result` is the dtype of its results.
using ChooseLoop = Loop2d (*)(DType result, const LoopSpec& spec);

}  // namespace opwheel::cpu
