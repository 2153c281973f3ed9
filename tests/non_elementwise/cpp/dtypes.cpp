// Operators that give what the SDK's helpers say of a tensor, whatever its dtype.
#include <bit>
#include <cstring>

#include "opwheel/cpu/matmul.h"
#include "opwheel/cpu/row_kernels.h"
#include "opwheel/kernels.h"
#include "opwheel/schema_library.h"
#include "opwheel/views.h"

#define OF_EVERY_DTYPE(KERNEL)                                                        \
  KERNEL(may_share_memory, "may_share_memory(Tensor a, Tensor b) -> Tensor")          \
  KERNEL(may_overlap_itself, "may_overlap_itself(Tensor x) -> Tensor")                \
  KERNEL(itemsize, "itemsize(Tensor x) -> Tensor")                                    \
  KERNEL(copied, "copied(Tensor x) -> Tensor")                                        \
  KERNEL(total, "total(Tensor x) -> Tensor")                                          \
  KERNEL(checked, "checked(Tensor x) -> ()")                                          \
  KERNEL(product, "product(Tensor a, Tensor b, Tensor? added, Tensor(a!) out) -> ()") \
  KERNEL(rows_of, "rows_of(Tensor a, int begin, int count) -> Tensor")                \
  KERNEL(run_rows, "run_rows(Tensor x) -> ()")

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves_dtypes, OF_EVERY_DTYPE)

namespace {

using namespace opwheel;

constexpr DTypes kComplex{ScalarType::ComplexHalf, ScalarType::ComplexFloat, ScalarType::ComplexDouble};
constexpr DTypes kFloat8{ScalarType::Float8_e5m2, ScalarType::Float8_e4m3fn, ScalarType::Float8_e5m2fnuz,
                         ScalarType::Float8_e4m3fnuz, ScalarType::Float8_e8m0fnu};
constexpr DTypes kUnsigned{ScalarType::UInt16, ScalarType::UInt32, ScalarType::UInt64};
constexpr DTypes kNumbers{DTypes(every_dtype | kComplex | kFloat8 | kUnsigned)};
constexpr DTypes kAll{DTypes(kNumbers | DTypes(ScalarType::Float4_e2m1fn_x2))};

template <class T>
Tensor number(T value, ScalarType dtype) {
  Tensor result = new_empty({}, dtype, Device{aoti_torch_device_type_cpu(), -1});
  *data<T>(result) = value;
  return result;
}

Tensor are_shared(const Tensor& a, const Tensor& b) { return number(may_share_memory(a, b), ScalarType::Bool); }
Tensor overlaps(const Tensor& x) { return number(may_overlap_itself(TensorInfo(x)), ScalarType::Bool); }
Tensor size_of(const Tensor& x) { return number(element_size(TensorInfo(x)), ScalarType::Long); }

// Element for element, as what dispatch() takes them for.
Tensor copied(const Tensor& given) {
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x);
  dispatch<kAll>(dtype_of(x), [&]<class T>() { std::copy_n(data<T>(x), TensorInfo(x).numel, data<T>(y)); });
  return y;
}

// As float64, or as the two parts of a complex number.
Tensor total(const Tensor& given) {
  const Tensor x = contiguous(given);
  Tensor parts = new_empty({2}, ScalarType::Double, device_of(x));
  double* const result = data<double>(parts);
  dispatch<kNumbers>(dtype_of(x), [&]<class T>() {
    Accumulate<T> sum(0);
    for (int64_t i = 0; i < TensorInfo(x).numel; ++i) sum += static_cast<Accumulate<T>>(data<T>(x)[i]);
    if constexpr (requires { sum.imag(); }) {
      result[0] = static_cast<double>(sum.real()), result[1] = static_cast<double>(sum.imag());
    } else {
      result[0] = static_cast<double>(sum), result[1] = 0;
    }
  });
  return parts;
}

void checked(const Tensor& x) { check(x, "x").dtype(floating); }

void product(const Tensor& a, const Tensor& b, const std::optional<Tensor>& added, Tensor& out) {
  added ? cpu::matmul_add(out, *added, a, b) : cpu::matmul(out, a, b);
}
Tensor rows_of(const Tensor& a, int64_t begin, int64_t count) {
  const Tensor rows = opwheel::rows_of(a, begin, count);
  Tensor copy = new_empty_like(rows);
  copy_to(copy, rows);
  return copy;
}

struct Nothing {};
template <int>
void no_rows(const Nothing&, int64_t, int64_t) {}
void run_rows(const Tensor& x) {
  const cpu::ByDtype<Nothing> table{{no_rows<0>, no_rows<1>, no_rows<2>, no_rows<3>}};
  cpu::run(table, dtype_of(x), Nothing{}, 1, 1);
}

}  // namespace

OPWHEEL_KERNELS(waves_dtypes, CPU, m) {
  using namespace waves_dtypes;
  implement<op::may_share_memory, are_shared>(m);
  implement<op::may_overlap_itself, overlaps>(m);
  implement<op::itemsize, size_of>(m);
  implement<op::copied, ::copied>(m);
  implement<op::total, ::total>(m);
  implement<op::checked, ::checked>(m);
  implement<op::product, ::product>(m);
  implement<op::rows_of, ::rows_of>(m);
  implement<op::run_rows, ::run_rows>(m);
}
