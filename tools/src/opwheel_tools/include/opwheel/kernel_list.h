// Operators that no functor computes: norms, cache writes, quantisation. A library lists them, with their schemas, in a
// macro that takes one macro (with a backslash at the end of each line but the last):
//
//     #define WAVES_KERNELS(KERNEL)
//       KERNEL(rms_norm, "rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor y, Tensor rstd)")
//       KERNEL(put, "put(Tensor rows, Tensor(a!) cache, Tensor slots) -> ()")
//
// A backend registers a kernel for each that it has (opwheel/kernels.h).
#pragma once

#include "opwheel/operators.h"

namespace opwheel::detail {

template <class Operators, class Kernels>
struct Joined;
template <class... Operators, class... Kernels>
struct Joined<OperatorList<Operators...>, OperatorList<Kernels...>> {
  using type = OperatorList<Operators..., Kernels...>;
};

}  // namespace opwheel::detail

// Declares a type for each row, library::op::<identifier>, and library::op::Kernels, the list of them.
#define OPWHEEL_DECLARE_KERNELS(library, KERNELS)                                            \
  namespace library::op {                                                                    \
  KERNELS(OPWHEEL_DETAIL_KERNEL)                                                             \
  KERNELS(OPWHEEL_DETAIL_SCHEMA_NOTE)                                                        \
  using Kernels = ::opwheel::detail::ListOf<void KERNELS(OPWHEEL_DETAIL_KERNEL_ITEM)>::type; \
  OPWHEEL_DETAIL_CHECK_NAMES(Kernels)                                                        \
  }
// The element-wise operators, where OPWHEEL_DECLARE_OPERATORS has declared some, and the kernels.
#define OPWHEEL_JOIN_LISTS(library)                                       \
  namespace library::op {                                                 \
  using Everything = ::opwheel::detail::Joined<Operators, Kernels>::type; \
  OPWHEEL_DETAIL_CHECK_NAMES(Everything)                                  \
  }

#define OPWHEEL_DETAIL_KERNEL(identifier_, text) \
  struct identifier_ {                           \
    OPWHEEL_DETAIL_SCHEMA(identifier_, text)     \
  };
#define OPWHEEL_DETAIL_KERNEL_ITEM(identifier, text) , identifier
