// A library's lists of operators, and what is made of them. Each is a macro in the library's own header with a row for
// each overload (and a backslash at the end of each line but the last):
//
//     #define WAVES_OPERATORS(OPERATOR, OVERLOAD)
//       OPERATOR(axpby, Axpby, "axpby(Tensor x, Tensor y, float a, float b) -> Tensor")
//       OVERLOAD(axpby_, axpby, "axpby_(Tensor(a!) x, Tensor y, float a, float b) -> Tensor(a!)")
//
//     #define WAVES_KERNELS(KERNEL)
//       KERNEL(rms_norm, "rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor y, Tensor rstd)")
//       KERNEL(put, "put(Tensor rows, Tensor(a!) cache, Tensor slots) -> ()")
//
// OPERATOR is an element-wise operator: it has an identifier, the functor that computes it (opwheel/functor.h) and the
// schema. OVERLOAD has, in the functor's place, the operator whose functor computes it as well. The schema library,
// every backend, the C functions for AOTInductor and the kernels for ExecuTorch are made from this list.
//
// KERNEL is an operator that no functor computes: norms, cache writes, quantisation. A backend registers a kernel for
// each that it has (opwheel/kernels.h).
#pragma once

#include <cstddef>
#include <string_view>

#include "opwheel/detail/schema.h"

namespace opwheel {

template <class... Operators>
struct OperatorList {};

namespace detail {

// A list that is written with a comma in front of each element.
template <class Nothing, class... Operators>
struct ListOf {
  using type = OperatorList<Operators...>;
};

template <class Operators, class Kernels>
struct Joined;
template <class... Operators, class... Kernels>
struct Joined<OperatorList<Operators...>, OperatorList<Kernels...>> {
  using type = OperatorList<Operators..., Kernels...>;
};

// Whether no two rows have one name. PyTorch would end the process that defines an operator again.
template <class... Operators>
constexpr bool have_distinct_names(OperatorList<Operators...>) {
  constexpr std::size_t kCount = sizeof...(Operators);
  const std::string_view names[kCount + 1] = {Operators::schema.name...};
  for (std::size_t i = 0; i < kCount; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (names[i] == names[j]) return false;
    }
  }
  return true;
}

}  // namespace detail
}  // namespace opwheel

#define OPWHEEL_DETAIL_CHECK_NAMES(list)                             \
  static_assert(::opwheel::detail::have_distinct_names(list{}),      \
                "opwheel: two rows of a list of operators have the " \
                "same name in their schemas; give each its own");

// Declares a type for each row, library::op::<identifier>, and library::op::Operators, the list of them.
#define OPWHEEL_DECLARE_OPERATORS(library, LIST)                                                          \
  namespace library::op {                                                                                 \
  LIST(OPWHEEL_DETAIL_OPERATOR, OPWHEEL_DETAIL_OVERLOAD)                                                  \
  LIST(OPWHEEL_DETAIL_LISTED_NOTE, OPWHEEL_DETAIL_LISTED_NOTE)                                            \
  using Operators = ::opwheel::detail::ListOf<void LIST(OPWHEEL_DETAIL_ITEM, OPWHEEL_DETAIL_ITEM)>::type; \
  OPWHEEL_DETAIL_CHECK_NAMES(Operators)                                                                   \
  }

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

#define OPWHEEL_DETAIL_OPERATOR(identifier_, Functor_, text) \
  struct identifier_ {                                       \
    using Operator = identifier_;                            \
    template <class C>                                       \
    using Functor = Functor_<C>;                             \
    OPWHEEL_DETAIL_SCHEMA(identifier_, text)                 \
    OPWHEEL_DETAIL_ELEMENTWISE(identifier_, text)            \
  };
#define OPWHEEL_DETAIL_OVERLOAD(identifier_, operator_, text) \
  struct identifier_ {                                        \
    using Operator = operator_;                               \
    template <class C>                                        \
    using Functor = Operator::Functor<C>;                     \
    OPWHEEL_DETAIL_SCHEMA(identifier_, text)                  \
  };
#define OPWHEEL_DETAIL_SCHEMA(identifier_, text)                             \
  static constexpr const char* identifier = #identifier_;                    \
  static constexpr const char* schema_text = text;                           \
  static constexpr ::opwheel::Schema schema = ::opwheel::parse_schema(text); \
  OPWHEEL_CHECK_SCHEMA(identifier_, ::opwheel::parse_schema(text));
#define OPWHEEL_DETAIL_ELEMENTWISE(identifier_, text)                                             \
  static_assert(::opwheel::is_elementwise(::opwheel::parse_schema(text)),                         \
                "opwheel: " #identifier_                                                          \
                " is listed with a functor, which computes elements of Tensors from Tensors and " \
                "floats; list what takes or returns something else as a KERNEL (opwheel/kernels.h)");
#define OPWHEEL_DETAIL_KERNEL(identifier_, text) \
  struct identifier_ {                           \
    OPWHEEL_DETAIL_SCHEMA(identifier_, text)     \
  };
#define OPWHEEL_DETAIL_KERNEL_ITEM(identifier, text) , identifier
#define OPWHEEL_DETAIL_ITEM(identifier, functor, text) , identifier
#define OPWHEEL_DETAIL_LISTED_NOTE(identifier, functor, text) OPWHEEL_DETAIL_SCHEMA_NOTE(identifier, text)
// Written into the files of libraries that register something (opwheel/detail/abi.h).
#ifndef OPWHEEL_DETAIL_SCHEMA_NOTE
#define OPWHEEL_DETAIL_SCHEMA_NOTE(identifier, text)
#endif

// For the rows that a use of the list leaves out.
#define OPWHEEL_IGNORE(identifier, functor, text)
