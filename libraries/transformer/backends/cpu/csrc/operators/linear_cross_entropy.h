// The computation of fused_linear_cross_entropy.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "../arguments.h"
#include "opwheel/cpu/matmul.h"

namespace transformer_ops::cpu {

inline std::array<Tensor, 5> linear_cross_entropy(const Tensor& given_input, const Tensor& given_weight,
                                                  const Tensor& given_target, const OptionalTensor& given_bias,
                                                  int64_t ignore_index, double lse_square_scale, double label_smoothing,
                                                  std::string_view reduction, double softcap, bool trains) {
  const LinearSizes sizes = check_linear(given_input, given_weight, label_smoothing, reduction, softcap);
  const int64_t rows = sizes.rows, width = sizes.width, classes = sizes.classes;
  const Tensor bias = optional_vector(given_bias, "bias", given_input, classes, "input");
  const Targets target(given_target, given_input, rows, classes, ignore_index);
  const ScalarType dtype = dtype_of(given_input), accumulated = wide(dtype);
  const bool is_narrow = dtype != accumulated;
  const int64_t at_once = is_narrow ? 512 : 256;  // of logits: enough for the matrix product to be fast
  const opwheel::Device device = device_of(given_input);
  const Tensor input = contiguous(given_input), weight = contiguous(given_weight);
  const Tensor weight_t = opwheel::transposed(weight);
  const int64_t counted = rows - std::count(target.data, target.data + rows, ignore_index);
  const double scale = reduction == "mean" ? 1.0 / static_cast<double>(counted) : 1.0;

  Tensor loss = new_empty({}, accumulated, device);
  Tensor d_input = new_empty(trains ? opwheel::Sizes{rows, width} : opwheel::Sizes{0}, dtype, device);
  Tensor d_weight = new_empty(trains ? opwheel::Sizes{classes, width} : opwheel::Sizes{0}, accumulated, device);
  Tensor d_bias = new_empty({trains && given_bias ? classes : 0}, accumulated, device);
  Tensor factor = new_empty({}, accumulated, device);
  fill(factor, counted == 0 ? 0 : scale);  // rows that do not count have no gradient, not even where all are such
  if (rows == 0) {
    OPWHEEL_SHIM(aoti_torch_zero_(d_weight.handle()));
    OPWHEEL_SHIM(aoti_torch_zero_(d_bias.handle()));
  }
  const Tensor logits = new_empty({std::min(at_once, rows), classes}, dtype, device);
  const auto of_rows = [&] { return new_empty({rows}, accumulated, device); };
  const Tensor row_loss = of_rows(), row_z = of_rows(), lse = of_rows(), lse_rest = of_rows();
  const Tensor one = new_empty({1}, accumulated, device);
  Tensor ones = new_empty({1, std::min(at_once, rows)}, dtype, device);
  fill(one, 1);
  fill(ones, 1);
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    const int64_t count = std::min(at_once, rows - begin);
    const Tensor x = opwheel::rows_of(input, begin, count), some = opwheel::rows_of(logits, 0, count);
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
                               .lse_rest = at(lse_rest),
                               .length = classes,
                               .x_stride = classes,
                               .ignore_index = ignore_index,
                               .lse_square_scale = lse_square_scale,
                               .label_smoothing = label_smoothing,
                               .softcap = softcap};
    run(device, dtype, forward, count, 4 * classes);
    if (!trains) continue;
    const CrossEntropyBackward backward{.grad = data<void>(one),
                                        .grad_z = nullptr,
                                        .x = data<void>(some),
                                        .weight = nullptr,
                                        .lse = at(lse),
                                        .lse_rest = at(lse_rest),
                                        .target = target.data + begin,
                                        .dx = data<void>(some),
                                        .length = classes,
                                        .x_stride = classes,
                                        .ignore_index = ignore_index,
                                        .lse_square_scale = lse_square_scale,
                                        .label_smoothing = label_smoothing,
                                        .softcap = softcap,
                                        .grad_per_row = false};
    run(device, dtype, backward, count, 4 * classes);
    opwheel::cpu::matmul(opwheel::rows_of(d_input, begin, count), some, weight);
    // The first product is written, those of further rows are added; one of 16-bit numbers has to be made first.
    const auto collect = [&](const Tensor& sum, const Tensor& a, const Tensor& b) {
      if (is_narrow) {
        const Tensor product = new_empty(sizes_of(sum), dtype, device);
        opwheel::cpu::matmul(product, a, b);
        const int64_t count = opwheel::TensorInfo(sum).numel;
        run(device, dtype, Accumulate{data<void>(product), data<void>(sum), 1, begin != 0}, count, 1);
      } else if (begin == 0) {
        opwheel::cpu::matmul(sum, a, b);
      } else {
        opwheel::cpu::matmul_add(sum, sum, a, b);
      }
    };
    collect(d_weight, opwheel::transposed(some), x);
    if (given_bias) {
      const Tensor sums = opwheel::as_matrix(d_bias, 1, classes, classes, 1, 0);
      collect(sums, opwheel::as_matrix(ones, 1, count, count, 1, 0), some);
    }
  }
  opwheel::dispatch(accumulated, [&]<class T>() {
    double total = 0;
    for (int64_t i = 0; i < rows; ++i) total += static_cast<double>(data<T>(row_loss)[i]);
    *data<T>(loss) = static_cast<T>(total * scale);
  });
  return {std::move(loss), std::move(d_input), std::move(d_weight), std::move(d_bias), std::move(factor)};
}

}  // namespace transformer_ops::cpu
