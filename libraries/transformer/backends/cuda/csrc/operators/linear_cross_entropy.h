// The computation of fused_linear_cross_entropy.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "../arguments.h"
#include "opwheel/call.h"

namespace transformer_ops::cuda {

constexpr int64_t kLogits = int64_t{1} << 26;  // in memory at a time: enough rows for the matrix products to be fast
constexpr int64_t kFewestRows = 256;

OPWHEEL_CALLEE(linear, "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
OPWHEEL_CALLEE(mm_out, "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)")

// out = a @ b
inline void matmul(const Tensor& out, const Tensor& a, const Tensor& b) {
  Tensor written = opwheel::share(out);
  opwheel::call<mm_out>(a, b, written);
}

inline std::array<Tensor, 5> linear_cross_entropy(const Tensor& given_input, const Tensor& given_weight,
                                                  const Tensor& given_target, const OptionalTensor& given_bias,
                                                  int64_t ignore_index, double lse_square_scale, double label_smoothing,
                                                  std::string_view reduction, double softcap, bool trains) {
  const LinearSizes sizes = check_linear(given_input, given_weight, label_smoothing, reduction, softcap);
  const int64_t rows = sizes.rows, width = sizes.width, classes = sizes.classes;
  optional_vector(given_bias, "bias", given_input, classes, "input");
  const Targets target(given_target, given_input, rows, classes, ignore_index);
  const ScalarType dtype = dtype_of(given_input), accumulated = wide(dtype);
  const opwheel::Device device = device_of(given_input);
  const int64_t at_once = std::min(std::max(kLogits / std::max<int64_t>(classes, 1), kFewestRows), rows);
  const Tensor input = contiguous(given_input), weight = contiguous(given_weight);

  Tensor loss = new_empty({}, accumulated, device), factor = new_empty({}, accumulated, device);
  Tensor d_input = new_empty(trains ? opwheel::Sizes{rows, width} : opwheel::Sizes{0}, dtype, device);
  Tensor d_weight = new_empty(trains ? opwheel::Sizes{classes, width} : opwheel::Sizes{0}, accumulated, device);
  Tensor d_bias = new_empty({trains && given_bias ? classes : 0}, accumulated, device);
  if (rows == 0) {
    OPWHEEL_SHIM(aoti_torch_zero_(d_weight.handle()));
    OPWHEEL_SHIM(aoti_torch_zero_(d_bias.handle()));
  }
  const Tensor of_rows = new_empty({4, rows}, accumulated, device);  // loss, z_loss, lse and what it is rounded by
  const int64_t bytes = opwheel::element_size(opwheel::code_of(accumulated));
  const auto numbers = [&](int64_t kind, int64_t row) {
    return static_cast<void*>(data<char>(of_rows) + (kind * rows + row) * bytes);
  };
  // The first product is written, those of further rows are added.
  const auto add_product = [&](const Tensor& sum, const Tensor& a, const Tensor& b, bool is_first) {
    if (is_first && dtype == accumulated) return matmul(sum, a, b);
    const Tensor product = new_empty(sizes_of(sum), dtype, device);
    matmul(product, a, b);
    run(device, dtype, Accumulate{data<void>(product), data<void>(sum), width, !is_first}, classes, width);
  };
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    const int64_t count = std::min(at_once, rows - begin);
    const Tensor x = opwheel::rows_of(input, begin, count), some = opwheel::call<linear>(x, weight, given_bias);
    const CrossEntropy forward{.x = data<void>(some),
                               .weight = nullptr,
                               .target = target.data + begin,
                               .loss = numbers(0, begin),
                               .z_loss = numbers(1, begin),
                               .lse = numbers(2, begin),
                               .lse_rest = numbers(3, begin),
                               .length = classes,
                               .x_stride = classes,
                               .ignore_index = ignore_index,
                               .lse_square_scale = lse_square_scale,
                               .label_smoothing = label_smoothing,
                               .softcap = softcap};
    run(device, dtype, forward, count, classes);
    if (!trains) continue;
    const CrossEntropyBackward backward{.grad = nullptr,
                                        .grad_z = nullptr,
                                        .x = data<void>(some),
                                        .weight = nullptr,
                                        .lse = numbers(2, begin),
                                        .lse_rest = numbers(3, begin),
                                        .target = target.data + begin,
                                        .dx = data<void>(some),
                                        .length = classes,
                                        .x_stride = classes,
                                        .ignore_index = ignore_index,
                                        .lse_square_scale = lse_square_scale,
                                        .label_smoothing = label_smoothing,
                                        .softcap = softcap,
                                        .grad_per_row = false};
    run(device, dtype, backward, count, classes);
    matmul(opwheel::rows_of(d_input, begin, count), some, weight);
    add_product(d_weight, opwheel::transposed(some), x, begin == 0);
    if (given_bias)
      run(device, dtype, ColumnSums{data<void>(some), data<void>(d_bias), count, begin != 0}, classes, count);
  }
  const TotalLoss total{.row_loss = numbers(0, 0),
                        .target = target.data,
                        .loss = data<void>(loss),
                        .factor = data<void>(factor),
                        .rows = rows,
                        .ignore_index = ignore_index,
                        .is_mean = reduction == "mean"};
  run(device, accumulated, total, 1, rows);
  return {std::move(loss), std::move(d_input), std::move(d_weight), std::move(d_bias), std::move(factor)};
}

}  // namespace transformer_ops::cuda
