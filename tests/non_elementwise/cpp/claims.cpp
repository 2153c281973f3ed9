// Right kernels, about which tests/non_elementwise/test_cpp_claims.py makes wrong claims.
#include <cmath>

#include "opwheel/cpu/rows.h"
#include "opwheel/kernels.h"
#include "opwheel/schema_library.h"

#define CLAIMS(KERNEL)                                                   \
  KERNEL(softmax, "softmax(Tensor x) -> Tensor")                         \
  KERNEL(softmax_of_rows, "softmax_of_rows(Tensor x) -> Tensor")         \
  KERNEL(softmax_elementwise, "softmax_elementwise(Tensor x) -> Tensor") \
  KERNEL(round_to_int8, "round_to_int8(Tensor x) -> Tensor")

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves_claims_cpp, CLAIMS)

namespace {

using namespace opwheel;

constexpr DTypes kDTypes{ScalarType::Float, ScalarType::Double};

// Over the first dimension.
Tensor softmax(const Tensor& given) {
  const TensorInfo info = check(given, "x").on_cpu().dtype(kDTypes).at_least(1).info();
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x);
  const int64_t length = info.sizes[0], inner = length == 0 ? 0 : info.numel / length;
  dispatch<kDTypes>(dtype_of(x), [&]<class T>() {
    cpu::for_rows(inner, length, [&, in = data<T>(x), out = data<T>(y)](int64_t i) {
      T top = length == 0 ? T(0) : in[i];
      for (int64_t k = 1; k < length; ++k) top = std::fmax(top, in[i + k * inner]);
      const T total = cpu::sum<T>(length, [&](int64_t k) { return std::exp(in[i + k * inner] - top); });
      for (int64_t k = 0; k < length; ++k) out[i + k * inner] = std::exp(in[i + k * inner] - top) / total;
    });
  });
  return y;
}

Tensor round_to_int8(const Tensor& given) {
  check(given, "x").on_cpu().dtype(kDTypes);
  const Tensor x = contiguous(given);
  Tensor q = new_empty(sizes_of(x), ScalarType::Char, device_of(x));
  dispatch<kDTypes>(dtype_of(x), [&]<class T>() {
    const int64_t count = numel(sizes_of(x));
    for (int64_t i = 0; i < count; ++i) data<int8_t>(q)[i] = static_cast<int8_t>(std::nearbyint(data<T>(x)[i]));
  });
  return q;
}

}  // namespace

OPWHEEL_KERNELS(waves_claims_cpp, CPU, m) {
  using namespace waves_claims_cpp;
  implement<op::softmax, ::softmax>(m);
  implement<op::softmax_of_rows, ::softmax>(m);
  implement<op::softmax_elementwise, ::softmax>(m);
  implement<op::round_to_int8, ::round_to_int8>(m);
}
