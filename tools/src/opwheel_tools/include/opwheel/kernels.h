// Kernels that somebody writes, for operators that are not element-wise. A library lists them (opwheel/kernel_list.h);
// a backend has one source file such as
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

#include "opwheel/allocate.h"
#include "opwheel/arguments.h"
#include "opwheel/check.h"
#include "opwheel/dtypes.h"
#include "opwheel/kernel_list.h"
#include "opwheel/registration.h"

#define OPWHEEL_KERNELS(library, key, m) STABLE_TORCH_LIBRARY_IMPL(library, key, m)
