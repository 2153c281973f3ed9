// The operator catalogue: the one place where a schema is written. The schema library defines it in the dispatcher,
// every backend's kernels are checked against it at compile time, and the Python package reads it back.
#pragma once

#include <array>
#include <string_view>

#include "opwheel/schema.h"

namespace muladd::op {

#define MULADD_OPERATOR(identifier, text)                \
  struct identifier {                                    \
    static constexpr const char* schema_text = text;     \
    static constexpr Schema schema = parse_schema(text); \
  }

MULADD_OPERATOR(muladd, "muladd(Tensor a, Tensor b, float c) -> Tensor");
MULADD_OPERATOR(muladd_out, "muladd.out(Tensor a, Tensor b, float c, *, Tensor(a!) out) -> Tensor(a!)");
MULADD_OPERATOR(muladd_, "muladd_(Tensor(a!) a, Tensor b, float c) -> Tensor(a!)");
MULADD_OPERATOR(muladd_backward, "muladd_backward(Tensor grad, Tensor a, Tensor b) -> (Tensor, Tensor)");
MULADD_OPERATOR(fma, "fma(Tensor a, Tensor b, Tensor c) -> Tensor");
MULADD_OPERATOR(fma_out, "fma.out(Tensor a, Tensor b, Tensor c, *, Tensor(a!) out) -> Tensor(a!)");
MULADD_OPERATOR(mul, "mul(Tensor a, Tensor b) -> Tensor");
MULADD_OPERATOR(mul_out, "mul.out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)");
MULADD_OPERATOR(add, "add(Tensor a, Tensor b) -> Tensor");
MULADD_OPERATOR(add_out, "add.out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)");
MULADD_OPERATOR(scale, "scale(Tensor x, float factor) -> Tensor");
MULADD_OPERATOR(scale_out, "scale.out(Tensor x, float factor, *, Tensor(a!) out) -> Tensor(a!)");

#undef MULADD_OPERATOR

template <class... Operators>
struct List {};

using Catalogue =
    List<muladd, muladd_out, muladd_, muladd_backward, fma, fma_out, mul, mul_out, add, add_out, scale, scale_out>;

}  // namespace muladd::op
