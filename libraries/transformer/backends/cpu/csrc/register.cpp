// Checks the arguments of each operator, allocates its results and runs its kernel.
#include <array>
#include <utility>

#include "arguments.h"
#include "transformer_ops/operators.h"

OPWHEEL_DECLARE_KERNELS(transformer_ops, TRANSFORMER_OPS_KERNELS)

namespace transformer_ops::cpu {
namespace {

using opwheel::data;
using opwheel::device_of;
using opwheel::dtype_of;
using opwheel::sizes_of;
using opwheel::cpu::run;
using OptionalTensor = std::optional<Tensor>;

Casting casting_of(std::string_view mode) {
  if (mode == "llama") return Casting::llama;
  if (mode == "gemma" || mode == "none") return Casting::gemma;
  fail("argument 'casting_mode' is '", mode, "', expected 'llama', 'gemma' or 'none'");
}

Tensor rms_norm(const Tensor& given, const OptionalTensor& given_weight, double eps, double offset,
                std::string_view casting_mode) {
  const int64_t n = check_rows(given, "x");
  const Tensor weight = optional_vector(given_weight, "weight", given, n);
  const Casting casting = casting_of(casting_mode);
  const Rows x(given);
  Tensor y = new_empty(sizes_of(given), dtype_of(given), device_of(given));
  const RmsNorm arguments{.x = x.data(), .weight = data_or_null(weight), .y = data<void>(y), .length = n,
                          .x_stride = x.stride, .y_stride = n, .eps = eps, .offset = offset, .casting = casting,
                          .residual = nullptr, .sum = nullptr, .residual_stride = 0, .sum_stride = 0};
  run(kernels().rms_norm, dtype_of(given), arguments, x.rows, n);
  return y;
}

std::array<Tensor, 2> norm_backward(const Tensor& given_grad, const Tensor* grad_sum, const Tensor& given,
                                    const OptionalTensor& given_weight, double eps, double offset,
                                    std::string_view casting_mode) {
  const int64_t n = check_rows(given, "x");
  check_like(given_grad, "grad", given, "x");
  const Tensor weight = optional_vector(given_weight, "weight", given, n);
  const Rows grad(given_grad), x(given);
  std::optional<Rows> more;
  if (grad_sum != nullptr) {
    check_like(*grad_sum, "grad_sum", given, "x");
    more.emplace(*grad_sum);
  }
  const ScalarType dtype = dtype_of(given);
  Tensor dx = new_empty(sizes_of(given), dtype, device_of(given));
  if (weight.handle() == nullptr) {
    const RmsNormBackward arguments{
        .grad = grad.data(), .x = x.data(), .weight = nullptr, .grad_sum = more ? more->data() : nullptr,
        .dx = data<void>(dx), .partial = nullptr, .length = n, .grad_stride = grad.stride, .x_stride = x.stride,
        .grad_sum_stride = more ? more->stride : 0, .rows = x.rows, .parts = x.rows, .eps = eps, .offset = offset,
        .casting = casting_of(casting_mode)};
    run(kernels().rms_norm_backward, dtype, arguments, x.rows, 2 * n);
    return {std::move(dx), new_empty({0}, dtype, device_of(given))};
  }
  const int64_t parts = part_count(x.rows);
  const Tensor partial = new_partial(parts, n, dtype, device_of(given));
  const RmsNormBackward arguments{
      .grad = grad.data(), .x = x.data(), .weight = data_or_null(weight), .grad_sum = more ? more->data() : nullptr,
      .dx = data<void>(dx), .partial = data<void>(partial), .length = n, .grad_stride = grad.stride,
      .x_stride = x.stride, .grad_sum_stride = more ? more->stride : 0, .rows = x.rows, .parts = parts, .eps = eps,
      .offset = offset, .casting = casting_of(casting_mode)};
  if (parts > 0) run(kernels().rms_norm_backward, dtype, arguments, parts, 2 * n * (x.rows / parts));
  return {std::move(dx), sum_parts(partial, parts, n, dtype)};
}

std::array<Tensor, 2> rms_norm_backward(const Tensor& grad, const Tensor& x, const OptionalTensor& weight, double eps,
                                        double offset, std::string_view casting_mode) {
  return norm_backward(grad, nullptr, x, weight, eps, offset, casting_mode);
}

void add_norm(const Tensor& given, const Tensor& given_residual, const Tensor& weight, double eps, double offset,
              std::string_view casting_mode, const Rows& y, const Rows& sum) {
  const Rows x(given), residual(given_residual);
  const RmsNorm arguments{.x = x.data(), .weight = data_or_null(weight), .y = y.data(), .length = x.length,
                          .x_stride = x.stride, .y_stride = y.stride, .eps = eps, .offset = offset,
                          .casting = casting_of(casting_mode), .residual = residual.data(), .sum = sum.data(),
                          .residual_stride = residual.stride, .sum_stride = sum.stride};
  run(kernels().rms_norm, dtype_of(given), arguments, x.rows, 2 * x.length);
}

// Where rows() had to make a copy of what is overwritten.
void write_back(const Tensor& copy, const Tensor& tensor) {
  if (data<void>(copy) != data<void>(tensor)) OPWHEEL_SHIM(aoti_torch_copy_(tensor.handle(), copy.handle(), 0));
}

std::array<Tensor, 2> fused_add_rms_norm(const Tensor& x, const Tensor& residual, const OptionalTensor& given_weight,
                                         double eps, double offset, std::string_view casting_mode) {
  const int64_t n = check_rows(x, "x");
  check_like(residual, "residual", x, "x");
  const Tensor weight = optional_vector(given_weight, "weight", x, n);
  casting_of(casting_mode);
  Tensor y = new_empty(sizes_of(x), dtype_of(x), device_of(x)), sum = new_empty(sizes_of(x), dtype_of(x), device_of(x));
  add_norm(x, residual, weight, eps, offset, casting_mode, Rows(y), Rows(sum));
  return {std::move(y), std::move(sum)};
}

void fused_add_rms_norm_(Tensor& x, Tensor& residual, const OptionalTensor& given_weight, double eps, double offset,
                         std::string_view casting_mode) {
  const int64_t n = check_rows(x, "x");
  check_like(residual, "residual", x, "x");
  const Tensor weight = optional_vector(given_weight, "weight", x, n);
  casting_of(casting_mode);
  const Rows y(x), sum(residual);  // copies where rows are not contiguous
  add_norm(x, residual, weight, eps, offset, casting_mode, y, sum);
  write_back(y.tensor, x);
  write_back(sum.tensor, residual);
}

std::array<Tensor, 2> fused_add_rms_norm_backward(const Tensor& grad_y, const Tensor& grad_sum, const Tensor& sum,
                                                  const OptionalTensor& weight, double eps, double offset,
                                                  std::string_view casting_mode) {
  return norm_backward(grad_y, &grad_sum, sum, weight, eps, offset, casting_mode);
}

Tensor layer_norm(const Tensor& given, const OptionalTensor& given_weight, const OptionalTensor& given_bias,
                  double eps) {
  const int64_t n = check_rows(given, "x");
  const Tensor weight = optional_vector(given_weight, "weight", given, n);
  const Tensor bias = optional_vector(given_bias, "bias", given, n);
  const Rows x(given);
  Tensor y = new_empty(sizes_of(given), dtype_of(given), device_of(given));
  const LayerNorm arguments{x.data(), data_or_null(weight), data_or_null(bias), data<void>(y), n, x.stride, eps};
  run(kernels().layer_norm, dtype_of(given), arguments, x.rows, n);
  return y;
}

std::array<Tensor, 3> layer_norm_backward(const Tensor& given_grad, const Tensor& given,
                                          const OptionalTensor& given_weight, double eps) {
  const int64_t n = check_rows(given, "x");
  check_like(given_grad, "grad", given, "x");
  const Tensor weight = optional_vector(given_weight, "weight", given, n);
  const Rows grad(given_grad), x(given);
  const ScalarType dtype = dtype_of(given);
  Tensor dx = new_empty(sizes_of(given), dtype, device_of(given));
  const int64_t parts = part_count(x.rows);
  const Tensor partial = new_partial(parts, n, dtype, device_of(given));
  const Tensor partial_bias = new_partial(parts, n, dtype, device_of(given));
  const LayerNormBackward arguments{.grad = grad.data(), .x = x.data(), .weight = data_or_null(weight),
                                    .dx = data<void>(dx), .partial = data<void>(partial),
                                    .partial_bias = data<void>(partial_bias), .length = n, .grad_stride = grad.stride,
                                    .x_stride = x.stride, .rows = x.rows, .parts = parts, .eps = eps};
  if (parts > 0) run(kernels().layer_norm_backward, dtype, arguments, parts, 2 * n * (x.rows / parts));
  return {std::move(dx), sum_parts(partial, parts, n, dtype), sum_parts(partial_bias, parts, n, dtype)};
}

Tensor gated(const Tensor& given_a, const Tensor& given_b, Activation activation) {
  const int64_t n = check_rows(given_a, "a");
  check_like(given_b, "b", given_a, "a");
  const Rows a(given_a), b(given_b);
  Tensor y = new_empty(sizes_of(given_a), dtype_of(given_a), device_of(given_a));
  const Gated arguments{a.data(), b.data(), data<void>(y), n, a.stride, b.stride, activation};
  run(kernels().gated, dtype_of(given_a), arguments, a.rows, 4 * n);
  return y;
}

std::array<Tensor, 2> gated_backward(const Tensor& given_grad, const Tensor& given_a, const Tensor& given_b,
                                     Activation activation) {
  const int64_t n = check_rows(given_a, "a");
  check_like(given_b, "b", given_a, "a");
  check_like(given_grad, "grad", given_a, "a");
  const Rows grad(given_grad), a(given_a), b(given_b);
  Tensor da = new_empty(sizes_of(given_a), dtype_of(given_a), device_of(given_a)), db = new_empty_like(da);
  const GatedBackward arguments{grad.data(), a.data(), b.data(), data<void>(da), data<void>(db),
                                n, grad.stride, a.stride, b.stride, activation};
  run(kernels().gated_backward, dtype_of(given_a), arguments, a.rows, 6 * n);
  return {std::move(da), std::move(db)};
}

Tensor swiglu(const Tensor& a, const Tensor& b) { return gated(a, b, Activation::silu); }
std::array<Tensor, 2> swiglu_backward(const Tensor& grad, const Tensor& a, const Tensor& b) {
  return gated_backward(grad, a, b, Activation::silu);
}

Activation gelu_of(std::string_view approximate) {
  if (approximate == "tanh") return Activation::gelu_tanh;
  if (approximate == "none") return Activation::gelu;
  fail("argument 'approximate' is '", approximate, "', expected 'tanh' or 'none'");
}
Tensor geglu(const Tensor& a, const Tensor& b, std::string_view approximate) {
  return gated(a, b, gelu_of(approximate));
}
std::array<Tensor, 2> geglu_backward(const Tensor& grad, const Tensor& a, const Tensor& b,
                                     std::string_view approximate) {
  return gated_backward(grad, a, b, gelu_of(approximate));
}

Tensor softmax(const Tensor& given) {
  const int64_t n = check_rows(given, "x");
  const Rows x(given);
  Tensor y = new_empty(sizes_of(given), dtype_of(given), device_of(given));
  run(kernels().softmax, dtype_of(given), Softmax{x.data(), data<void>(y), n, x.stride}, x.rows, 4 * n);
  return y;
}

Tensor softmax_backward(const Tensor& given_grad, const Tensor& given) {
  const int64_t n = check_rows(given, "y");
  check_like(given_grad, "grad", given, "y");
  const Rows grad(given_grad), y(given);
  Tensor dx = new_empty(sizes_of(given), dtype_of(given), device_of(given));
  const SoftmaxBackward arguments{grad.data(), y.data(), data<void>(dx), n, grad.stride, y.stride};
  run(kernels().softmax_backward, dtype_of(given), arguments, y.rows, 2 * n);
  return dx;
}

}  // namespace
}  // namespace transformer_ops::cpu

OPWHEEL_KERNELS(transformer_ops, CPU, m) {
  using namespace transformer_ops;
  using opwheel::implement;
  implement<op::rms_norm, cpu::rms_norm>(m);
  implement<op::rms_norm_backward, cpu::rms_norm_backward>(m);
  implement<op::fused_add_rms_norm, cpu::fused_add_rms_norm>(m);
  implement<op::fused_add_rms_norm_, cpu::fused_add_rms_norm_>(m);
  implement<op::fused_add_rms_norm_backward, cpu::fused_add_rms_norm_backward>(m);
  implement<op::layer_norm, cpu::layer_norm>(m);
  implement<op::layer_norm_backward, cpu::layer_norm_backward>(m);
  implement<op::swiglu, cpu::swiglu>(m);
  implement<op::swiglu_backward, cpu::swiglu_backward>(m);
  implement<op::geglu, cpu::geglu>(m);
  implement<op::geglu_backward, cpu::geglu_backward>(m);
  implement<op::softmax, cpu::softmax>(m);
  implement<op::softmax_backward, cpu::softmax_backward>(m);
}
