// Checks the arguments of each operator, allocates its results and runs its kernel.
#include <algorithm>
#include <array>
#include <utility>

#include "arguments.h"
#include "opwheel/cpu/matmul.h"
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
  const RmsNorm arguments{.x = x.data(),
                          .weight = data_or_null(weight),
                          .y = data<void>(y),
                          .length = n,
                          .x_stride = x.stride,
                          .y_stride = n,
                          .eps = eps,
                          .offset = offset,
                          .casting = casting,
                          .residual = nullptr,
                          .sum = nullptr,
                          .residual_stride = 0,
                          .sum_stride = 0};
  run(kernels().rms_norm, dtype_of(given), arguments, x.rows, n);
  return y;
}

std::array<Tensor, 2> norm_backward(const Tensor& given_grad, const Tensor* grad_sum, const Tensor& given,
                                    const OptionalTensor& given_weight, double eps, double offset, Casting casting) {
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
  const bool is_weighted = weight.handle() != nullptr;
  // Without sums over rows, a group for each.
  const int64_t parts = is_weighted ? part_count(x.rows) : x.rows;
  const Tensor partial = is_weighted ? new_partial(parts, n, dtype, device_of(given)) : Tensor();
  const RmsNormBackward arguments{.grad = grad.data(),
                                  .x = x.data(),
                                  .weight = data_or_null(weight),
                                  .grad_sum = more ? more->data() : nullptr,
                                  .dx = data<void>(dx),
                                  .partial = is_weighted ? data<void>(partial) : nullptr,
                                  .length = n,
                                  .grad_stride = grad.stride,
                                  .x_stride = x.stride,
                                  .grad_sum_stride = more ? more->stride : 0,
                                  .rows = x.rows,
                                  .parts = parts,
                                  .eps = eps,
                                  .offset = offset,
                                  .casting = casting};
  if (parts > 0) run(kernels().rms_norm_backward, dtype, arguments, parts, 2 * n * (x.rows / parts));
  return {std::move(dx), is_weighted ? sum_parts(partial, parts, n, dtype) : new_empty({0}, dtype, device_of(given))};
}

std::array<Tensor, 2> rms_norm_backward(const Tensor& grad, const Tensor& x, const OptionalTensor& weight, double eps,
                                        double offset, std::string_view casting_mode) {
  return norm_backward(grad, nullptr, x, weight, eps, offset, casting_of(casting_mode));
}

void add_norm(const Tensor& given, const Tensor& given_residual, const Tensor& weight, double eps, double offset,
              Casting casting, const Rows& y, const Rows& sum) {
  const Rows x(given), residual(given_residual);
  const RmsNorm arguments{.x = x.data(),
                          .weight = data_or_null(weight),
                          .y = y.data(),
                          .length = x.length,
                          .x_stride = x.stride,
                          .y_stride = y.stride,
                          .eps = eps,
                          .offset = offset,
                          .casting = casting,
                          .residual = residual.data(),
                          .sum = sum.data(),
                          .residual_stride = residual.stride,
                          .sum_stride = sum.stride};
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
  const Casting casting = casting_of(casting_mode);
  Tensor y = new_empty(sizes_of(x), dtype_of(x), device_of(x)), sum = new_empty(sizes_of(x), dtype_of(x), device_of(x));
  add_norm(x, residual, weight, eps, offset, casting, Rows(y), Rows(sum));
  return {std::move(y), std::move(sum)};
}

void fused_add_rms_norm_(Tensor& x, Tensor& residual, const OptionalTensor& given_weight, double eps, double offset,
                         std::string_view casting_mode) {
  const int64_t n = check_rows(x, "x");
  check_like(residual, "residual", x, "x");
  check_apart(residual, "residual", x, "x");
  const Tensor weight = optional_vector(given_weight, "weight", x, n);
  const Casting casting = casting_of(casting_mode);
  const Rows y(x), sum(residual);  // copies where rows are not contiguous
  add_norm(x, residual, weight, eps, offset, casting, y, sum);
  write_back(y.tensor, x);
  write_back(sum.tensor, residual);
}

std::array<Tensor, 2> fused_add_rms_norm_backward(const Tensor& grad_y, const Tensor& grad_sum, const Tensor& sum,
                                                  const OptionalTensor& weight, double eps, double offset,
                                                  std::string_view casting_mode) {
  return norm_backward(grad_y, &grad_sum, sum, weight, eps, offset, casting_of(casting_mode));
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
  const LayerNormBackward arguments{.grad = grad.data(),
                                    .x = x.data(),
                                    .weight = data_or_null(weight),
                                    .dx = data<void>(dx),
                                    .partial = data<void>(partial),
                                    .partial_bias = data<void>(partial_bias),
                                    .length = n,
                                    .grad_stride = grad.stride,
                                    .x_stride = x.stride,
                                    .rows = x.rows,
                                    .parts = parts,
                                    .eps = eps};
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
  const GatedBackward arguments{grad.data(), a.data(),    b.data(), data<void>(da), data<void>(db),
                                n,           grad.stride, a.stride, b.stride,       activation};
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

// Positions in dimension 2 and heads in dimension 1, or the other way round.
Tensor rotate(const Tensor& given, const Tensor& cos, const Tensor& sin, Rope arguments) {
  const opwheel::TensorInfo info(given);
  const int64_t position_dim = arguments.heads_first ? 2 : 1, head_dim = arguments.heads_first ? 1 : 2;
  const bool has_rows = info.sizes[3] <= 1 || info.strides[3] == 1;
  const Tensor x = has_rows ? opwheel::share(given) : contiguous(given);
  const opwheel::TensorInfo seen(x);
  Tensor y = new_empty(sizes_of(given), dtype_of(given), device_of(given));
  arguments.x = data<void>(x);
  arguments.cos = data<void>(cos);
  arguments.sin = data<void>(sin);
  arguments.y = data<void>(y);
  arguments.length = info.sizes[3];
  arguments.heads = info.sizes[head_dim];
  arguments.strides[0] = seen.strides[0];
  arguments.strides[1] = seen.strides[head_dim];
  arguments.strides[2] = seen.strides[position_dim];
  const int64_t rows = info.sizes[3] == 0 ? 0 : info.numel / info.sizes[3];
  run(kernels().rope, dtype_of(given), arguments, rows, 2 * info.sizes[3]);
  return y;
}

std::array<Tensor, 2> rope(const Tensor& q, const Tensor& k, const Tensor& given_cos, const Tensor& given_sin,
                           const OptionalTensor& given_ids, int64_t unsqueeze_dim, bool interleaved) {
  const Check checked = check(q, "q").on_cpu().dtype(opwheel::floating).ndim(4);
  if (unsqueeze_dim != 1 && unsqueeze_dim != 2)
    fail("argument 'unsqueeze_dim' is ", unsqueeze_dim, ", expected 1 or 2");
  const int64_t position_dim = unsqueeze_dim == 1 ? 2 : 1;
  const int64_t batches = checked.info().sizes[0], positions = checked.info().sizes[position_dim];
  const int64_t length = checked.info().sizes[3];
  if (length % 2 != 0) fail("argument 'q' has rows of ", length, " elements, expected an even number");
  check(k, "k").on_cpu().same_dtype(q, "q").ndim(4).size(0, batches).size(position_dim, positions).size(3, length);
  check(given_sin, "sin").on_cpu().same_shape(given_cos, "cos").same_dtype(given_cos, "cos");
  check(given_cos, "cos").on_cpu().same_dtype(q, "q");
  const opwheel::TensorInfo table(given_cos);
  if (table.ndim < 2 || table.ndim > 3 ||
      (table.sizes[table.ndim - 1] != length && table.sizes[table.ndim - 1] != length / 2)) {
    fail("argument 'cos' has shape ", opwheel::shape_text(table.ndim, table.sizes), ", expected (positions, ", length,
         ") or (batch, positions, ", length, "), or half as many columns");
  }
  const int64_t table_rows = table.sizes[table.ndim - 2], table_batches = table.ndim == 3 ? table.sizes[0] : 1;
  Tensor ids;
  int64_t position_batches = 1;
  if (given_ids) {
    const Check of_ids = check(*given_ids, "position_ids").on_cpu().dtype(ScalarType::Long).size(-1, positions);
    if (of_ids.info().ndim > 2) of_ids.ndim(2);
    position_batches = of_ids.info().ndim == 2 ? of_ids.info().sizes[0] : 1;
    if (position_batches != 1) of_ids.size(0, batches);
    if (table_batches != 1)
      fail("arguments 'cos' and 'position_ids' both have batches; pass one table for all of them");
    ids = contiguous(*given_ids);
    const int64_t* values = data<int64_t>(ids);
    for (int64_t i = 0; i < of_ids.info().numel; ++i) {
      if (values[i] < 0 || values[i] >= table_rows) {
        fail("argument 'position_ids' has ", values[i], ", but 'cos' has ", table_rows, " positions");
      }
    }
  } else {
    if (table_rows != positions || (table_batches != 1 && table_batches != batches)) {
      fail("argument 'cos' has shape ", opwheel::shape_text(table.ndim, table.sizes), ", but there are ", positions,
           " positions of ", batches, " batches");
    }
  }
  const Tensor cos = contiguous(given_cos), sin = contiguous(given_sin);
  const Rope arguments{.x = nullptr,
                       .cos = nullptr,
                       .sin = nullptr,
                       .y = nullptr,
                       .position_ids = ids.handle() == nullptr ? nullptr : data<int64_t>(ids),
                       .length = length,
                       .heads = 0,
                       .positions = positions,
                       .strides = {},
                       .angle_stride = table.sizes[table.ndim - 1],
                       .angle_batches = table_batches,
                       .position_batches = position_batches,
                       .heads_first = unsqueeze_dim == 1,
                       .interleaved = interleaved,
                       .backwards = false};
  Tensor first = rotate(q, cos, sin, arguments);
  return {std::move(first), rotate(k, cos, sin, arguments)};
}

struct Targets {
  Tensor tensor;
  const int64_t* data;

  Targets(const Tensor& given, int64_t rows, int64_t classes, int64_t ignore_index) {
    check(given, "target").on_cpu().dtype(ScalarType::Long).shape({rows});
    tensor = contiguous(given);
    data = opwheel::data<int64_t>(tensor);
    for (int64_t i = 0; i < rows; ++i) {
      if (data[i] != ignore_index && (data[i] < 0 || data[i] >= classes)) {
        fail("argument 'target' has ", data[i], ", which is no class: there are ", classes);
      }
    }
  }
};

void fill(const Tensor& tensor, double value) {
  opwheel::dispatch(dtype_of(tensor), [&]<class T>() {
    std::fill_n(data<T>(tensor), opwheel::TensorInfo(tensor).numel, static_cast<T>(value));
  });
}

std::array<Tensor, 3> cross_entropy_rows(const Tensor& input, const Tensor& given_target,
                                         const OptionalTensor& given_weight, int64_t ignore_index,
                                         double lse_square_scale, double label_smoothing, double softcap) {
  const Check checked = check(input, "input").on_cpu().dtype(opwheel::floating).ndim(2);
  const int64_t rows = checked.info().sizes[0], classes = checked.info().sizes[1];
  const Tensor weight = optional_vector(given_weight, "weight", input, classes, "input");
  const Targets target(given_target, rows, classes, ignore_index);
  const Rows x(input);
  const auto of_rows = [&] { return new_empty({rows}, wide(dtype_of(input)), device_of(input)); };
  Tensor loss = of_rows(), z_loss = of_rows(), lse = of_rows();
  const CrossEntropy arguments{.x = x.data(),
                               .weight = data_or_null(weight),
                               .target = target.data,
                               .loss = data<void>(loss),
                               .z_loss = data<void>(z_loss),
                               .lse = data<void>(lse),
                               .length = classes,
                               .x_stride = x.stride,
                               .ignore_index = ignore_index,
                               .lse_square_scale = lse_square_scale,
                               .label_smoothing = label_smoothing,
                               .softcap = softcap};
  run(kernels().cross_entropy, dtype_of(input), arguments, rows, 4 * classes);
  return {std::move(loss), std::move(z_loss), std::move(lse)};
}

Tensor cross_entropy_backward(const Tensor& given_grad, const Tensor& input, const Tensor& given_target,
                              const OptionalTensor& given_weight, const Tensor& given_lse, int64_t ignore_index,
                              double lse_square_scale, double label_smoothing, double softcap) {
  const Check checked = check(input, "input").on_cpu().dtype(opwheel::floating).ndim(2);
  const int64_t rows = checked.info().sizes[0], classes = checked.info().sizes[1];
  check(given_grad, "grad").on_cpu().dtype(wide(dtype_of(input))).shape({rows});
  check(given_lse, "lse").on_cpu().dtype(wide(dtype_of(input))).shape({rows});
  const Tensor weight = optional_vector(given_weight, "weight", input, classes, "input");
  const Targets target(given_target, rows, classes, ignore_index);
  const Rows x(input);
  const Tensor grad = contiguous(given_grad), lse = contiguous(given_lse);
  Tensor dx = new_empty(sizes_of(input), dtype_of(input), device_of(input));
  const CrossEntropyBackward arguments{.grad = data<void>(grad),
                                       .x = x.data(),
                                       .weight = data_or_null(weight),
                                       .lse = data<void>(lse),
                                       .target = target.data,
                                       .dx = data<void>(dx),
                                       .length = classes,
                                       .x_stride = x.stride,
                                       .ignore_index = ignore_index,
                                       .lse_square_scale = lse_square_scale,
                                       .label_smoothing = label_smoothing,
                                       .softcap = softcap,
                                       .scale = 1,
                                       .grad_per_row = true};
  run(kernels().cross_entropy_backward, dtype_of(input), arguments, rows, 4 * classes);
  return dx;
}

// The loss of input @ weight^T + bias, whose rows are made a few at a time: never are all logits in memory. With
// `trains`, their gradients take their place, and those of the inputs follow at once.
std::array<Tensor, 4> linear_cross_entropy(const Tensor& given_input, const Tensor& given_weight,
                                           const Tensor& given_target, const OptionalTensor& given_bias,
                                           int64_t ignore_index, double lse_square_scale, double label_smoothing,
                                           std::string_view reduction, double softcap, bool trains) {
  constexpr int64_t kRows = 256;  // of logits: enough for the matrix product to be fast
  const Check checked = check(given_input, "input").on_cpu().dtype(opwheel::floating).ndim(2);
  const int64_t rows = checked.info().sizes[0], width = checked.info().sizes[1];
  const Check of_weight =
      check(given_weight, "weight").on_cpu().same_dtype(given_input, "input").ndim(2).size(1, width);
  const int64_t classes = of_weight.info().sizes[0];
  const Tensor bias = optional_vector(given_bias, "bias", given_input, classes, "input");
  const Targets target(given_target, rows, classes, ignore_index);
  if (reduction != "mean" && reduction != "sum") {
    fail("argument 'reduction' is '", reduction, "', expected 'mean' or 'sum'");
  }
  const ScalarType dtype = dtype_of(given_input), accumulated = wide(dtype);
  const opwheel::Device device = device_of(given_input);
  const Tensor input = contiguous(given_input), weight = contiguous(given_weight);
  const Tensor weight_t = opwheel::cpu::transposed(weight);
  const int64_t counted = rows - std::count(target.data, target.data + rows, ignore_index);
  const double scale = reduction == "mean" ? 1.0 / static_cast<double>(counted) : 1.0;

  Tensor loss = new_empty({}, accumulated, device);
  Tensor d_input = new_empty(trains ? opwheel::Sizes{rows, width} : opwheel::Sizes{0}, dtype, device);
  Tensor d_weight = new_empty(trains ? opwheel::Sizes{classes, width} : opwheel::Sizes{0}, dtype, device);
  Tensor d_bias = new_empty({trains && given_bias ? classes : 0}, dtype, device);
  if (rows == 0) {
    OPWHEEL_SHIM(aoti_torch_zero_(d_weight.handle()));
    OPWHEEL_SHIM(aoti_torch_zero_(d_bias.handle()));
  }
  const Tensor logits = new_empty({std::min(kRows, rows), classes}, dtype, device);
  const Tensor row_loss = new_empty({rows}, accumulated, device), row_z = new_empty({rows}, accumulated, device);
  const Tensor lse = new_empty({rows}, accumulated, device), one = new_empty({1}, accumulated, device);
  Tensor ones = new_empty({1, std::min(kRows, rows)}, dtype, device);
  fill(one, 1);
  fill(ones, 1);
  for (int64_t begin = 0; begin < rows; begin += kRows) {
    const int64_t count = std::min(kRows, rows - begin);
    const Tensor x = opwheel::cpu::rows_of(input, begin, count), some = opwheel::cpu::rows_of(logits, 0, count);
    if (given_bias) {
      opwheel::cpu::matmul_add(some, bias, x, weight_t);
    } else {
      opwheel::cpu::matmul(some, x, weight_t);
    }
    const auto at = [&](const Tensor& of_rows) {
      const int64_t bytes = accumulated == ScalarType::Double ? 8 : 4;
      return static_cast<void*>(data<char>(of_rows) + begin * bytes);
    };
    const CrossEntropy forward{.x = data<void>(some),
                               .weight = nullptr,
                               .target = target.data + begin,
                               .loss = at(row_loss),
                               .z_loss = at(row_z),
                               .lse = at(lse),
                               .length = classes,
                               .x_stride = classes,
                               .ignore_index = ignore_index,
                               .lse_square_scale = lse_square_scale,
                               .label_smoothing = label_smoothing,
                               .softcap = softcap};
    run(kernels().cross_entropy, dtype, forward, count, 4 * classes);
    if (!trains) continue;
    const CrossEntropyBackward backward{.grad = data<void>(one),
                                        .x = data<void>(some),
                                        .weight = nullptr,
                                        .lse = at(lse),
                                        .target = target.data + begin,
                                        .dx = data<void>(some),
                                        .length = classes,
                                        .x_stride = classes,
                                        .ignore_index = ignore_index,
                                        .lse_square_scale = lse_square_scale,
                                        .label_smoothing = label_smoothing,
                                        .softcap = softcap,
                                        .scale = scale,
                                        .grad_per_row = false};
    run(kernels().cross_entropy_backward, dtype, backward, count, 4 * classes);
    opwheel::cpu::matmul(opwheel::cpu::rows_of(d_input, begin, count), some, weight);
    // The first product is written, those of further rows are added.
    const auto collect = [&](const Tensor& sum, const Tensor& a, const Tensor& b) {
      begin == 0 ? opwheel::cpu::matmul(sum, a, b) : opwheel::cpu::matmul_add(sum, sum, a, b);
    };
    collect(d_weight, opwheel::cpu::transposed(some), x);
    if (given_bias) {
      const Tensor sums = opwheel::cpu::as_matrix(d_bias, 1, classes, classes, 1, 0);
      collect(sums, opwheel::cpu::as_matrix(ones, 1, count, count, 1, 0), some);
    }
  }
  opwheel::dispatch(accumulated, [&]<class T>() {
    double total = 0;
    for (int64_t i = 0; i < rows; ++i) total += static_cast<double>(data<T>(row_loss)[i]);
    *data<T>(loss) = static_cast<T>(total * scale);
  });
  return {std::move(loss), std::move(d_input), std::move(d_weight), std::move(d_bias)};
}

Tensor fused_linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target,
                                  const OptionalTensor& bias, int64_t ignore_index, double lse_square_scale,
                                  double label_smoothing, std::string_view reduction, double softcap) {
  auto results = linear_cross_entropy(input, weight, target, bias, ignore_index, lse_square_scale, label_smoothing,
                                      reduction, softcap, false);
  return std::move(results[0]);
}
std::array<Tensor, 4> fused_linear_cross_entropy_training(const Tensor& input, const Tensor& weight,
                                                          const Tensor& target, const OptionalTensor& bias,
                                                          int64_t ignore_index, double lse_square_scale,
                                                          double label_smoothing, std::string_view reduction,
                                                          double softcap) {
  return linear_cross_entropy(input, weight, target, bias, ignore_index, lse_square_scale, label_smoothing, reduction,
                              softcap, true);
}

Tensor scaled(const Tensor& given, const Tensor& factor) {
  const int64_t n = check_rows(given, "x");
  check(factor, "factor").on_cpu().dtype(wide(dtype_of(given))).shape({});
  const Rows x(given);
  Tensor y = new_empty(sizes_of(given), dtype_of(given), device_of(given));
  run(kernels().scaled, dtype_of(given), Scaled{x.data(), data<void>(factor), data<void>(y), n, x.stride}, x.rows, n);
  return y;
}

std::array<Tensor, 2> quantize_rowwise(const Tensor& given) {
  const int64_t n = check_rows(given, "x");
  const Rows x(given);
  opwheel::Sizes leading = sizes_of(given);
  leading.pop_back();
  Tensor q = new_empty(sizes_of(given), ScalarType::Char, device_of(given));
  Tensor scale = new_empty(leading, ScalarType::Float, device_of(given));
  run(kernels().quantize, dtype_of(given), Quantize{x.data(), data<void>(q), data<void>(scale), n, x.stride}, x.rows,
      n);
  return {std::move(q), std::move(scale)};
}

Tensor dequantize_rowwise(const Tensor& given, const Tensor& given_scale, ScalarType dtype) {
  const Check checked = check(given, "q").on_cpu().dtype(ScalarType::Char).at_least(1);
  const int64_t n = checked.info().sizes[checked.info().ndim - 1];
  if (!opwheel::floating.has(dtype)) {
    fail("argument 'dtype' is ", opwheel::dtype_name(opwheel::code_of(dtype)), ", expected one of ",
         opwheel::floating.text());
  }
  check(given_scale, "scale").on_cpu().dtype(ScalarType::Float).ndim(checked.info().ndim - 1);
  for (int64_t d = 0; d + 1 < checked.info().ndim; ++d) check(given_scale, "scale").size(d, checked.info().sizes[d]);
  const Tensor q = contiguous(given), scale = contiguous(given_scale);
  Tensor x = new_empty(sizes_of(given), dtype, device_of(given));
  const int64_t rows = n == 0 ? 0 : checked.info().numel / n;
  run(kernels().dequantize, dtype, Dequantize{data<void>(q), data<void>(scale), data<void>(x), n}, rows, n);
  return x;
}

// Writes token i of key and value into slot_mapping[i] = block * block_size + offset of the caches; negative slots are
// left out.
void reshape_and_cache(const Tensor& key, const Tensor& value, Tensor& key_cache, Tensor& value_cache,
                       const Tensor& given_slots) {
  const Check keys = check(key, "key").on_cpu().dtype(opwheel::every_dtype).ndim(3);
  const int64_t tokens = keys.info().sizes[0], heads = keys.info().sizes[1], length = keys.info().sizes[2];
  check(value, "value").on_cpu().same_dtype(key, "key").shape({tokens, heads, -1});
  const opwheel::TensorInfo values(value);
  const Check cache = check(key_cache, "key_cache").on_cpu().same_dtype(key, "key").shape({-1, -1, heads, length});
  const int64_t blocks = cache.info().sizes[0], block_size = cache.info().sizes[1];
  check(value_cache, "value_cache").on_cpu().same_dtype(key, "key").shape({blocks, block_size, heads, values.sizes[2]});
  check_apart(value_cache, "value_cache", key_cache, "key_cache");
  check(given_slots, "slot_mapping").on_cpu().dtype(ScalarType::Long).shape({tokens});
  const Tensor slots = contiguous(given_slots);
  const int64_t* slot = data<int64_t>(slots);
  for (int64_t i = 0; i < tokens; ++i) {
    if (slot[i] >= blocks * block_size) {
      fail("argument 'slot_mapping' has ", slot[i], ", but the caches have ", blocks * block_size, " slots");
    }
  }
  const auto write = [&](const Tensor& given, Tensor& target, int64_t width) {
    const Tensor from = contiguous(given);
    const opwheel::TensorInfo to(target);
    opwheel::dispatch<opwheel::every_dtype>(dtype_of(given), [&]<class T>() {
      const T* source = data<T>(from);
      T* start = data<T>(target);
      opwheel::cpu::for_rows(tokens, heads * width, [&](int64_t i) {
        if (slot[i] < 0) return;
        T* place = start + slot[i] / block_size * to.strides[0] + slot[i] % block_size * to.strides[1];
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t k = 0; k < width; ++k) {
            place[h * to.strides[2] + k * to.strides[3]] = source[(i * heads + h) * width + k];
          }
        }
      });
    });
  };
  write(key, key_cache, length);
  write(value, value_cache, values.sizes[2]);
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
  implement<op::rope, cpu::rope>(m);
  implement<op::cross_entropy_rows, cpu::cross_entropy_rows>(m);
  implement<op::cross_entropy_backward, cpu::cross_entropy_backward>(m);
  implement<op::fused_linear_cross_entropy, cpu::fused_linear_cross_entropy>(m);
  implement<op::fused_linear_cross_entropy_training, cpu::fused_linear_cross_entropy_training>(m);
  implement<op::scaled, cpu::scaled>(m);
  implement<op::quantize_rowwise, cpu::quantize_rowwise>(m);
  implement<op::dequantize_rowwise, cpu::dequantize_rowwise>(m);
  implement<op::reshape_and_cache, cpu::reshape_and_cache>(m);
}
