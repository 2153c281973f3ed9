// For kernels written by hand, of operators that are not element-wise: tensors, checks of arguments, dtypes and the
// registration. A library lists them (opwheel/operators.h); a backend has one source file such as
//
//     #include "opwheel/kernels.h"
//     #include "opwheel/cpu/rows.h"
//     #include "waves/operators.h"
//     OPWHEEL_DECLARE_KERNELS(waves, WAVES_KERNELS)
//
//     using namespace opwheel;
//
//     Tensor softmax(const Tensor& input) {
//       check(input, "x").on_cpu().dtype(floating).at_least(1);
//       const Tensor x = contiguous(input);
//       Tensor y = new_empty_like(x);
//       ...
//       return y;
//     }
//
//     OPWHEEL_KERNELS(waves, CPU, m) { implement<waves::op::softmax, softmax>(m); }
//
// A kernel whose signature is not the schema's does not compile.
#pragma once

// IWYU pragma: begin_exports
#include "opwheel/detail/allocate.h"
#include "opwheel/detail/arguments.h"
#include "opwheel/detail/check.h"
#include "opwheel/detail/dtypes.h"
#include "opwheel/detail/error.h"
#include "opwheel/detail/layout.h"
#include "opwheel/detail/overlap.h"
#include "opwheel/detail/registration.h"
#include "opwheel/detail/tensor.h"
#include "opwheel/operators.h"
// IWYU pragma: end_exports
