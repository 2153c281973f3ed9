// linear and its gradients: arguments are checked, results allocated, kernels run.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>

#include "../arguments.h"

namespace transformer_ops::cpu {

// Rows and columns that are computed at a time.
struct Block {
  int64_t height, width;

  int64_t count(int64_t rows, int64_t columns) const {
    return ((rows + height - 1) / height) * ((columns + width - 1) / width);
  }
};

// Blocks are so large that what is packed is used often, and as many as threads may want. Those of few rows are narrow,
// so that weights are read in the order in which they are in memory; and where little is to be computed of each number,
// they are wide, so that results are written in that order.
inline Block block_of(const LinearProduct& product) {
  constexpr int64_t kFew = 16, kWanted = 32;
  constexpr Block kLarge{256, 128}, kMedium{128, 64}, kSmall{64, 32}, kRow{1, 128}, kFewRows{kFew, 32},
      kFlat{kFew, 512};
  if (product.rows == 1) return kRow;
  if (product.depth <= kFew) return kFlat;
  if (product.rows <= kFew) return kFewRows;
  for (const Block& block : {kLarge, kMedium}) {
    if (block.count(product.rows, product.columns) >= kWanted) return block;
  }
  return kSmall;
}

inline void run_product(LinearProduct product, const Tensor& out) {
  if (product.rows == 0 || product.columns == 0) return;
  const Block block = block_of(product);
  product.height = std::min(block.height, product.rows), product.width = block.width;
  // In elements that could be read and written meanwhile: 16 multiplications each.
  const int64_t cost = 1 + product.width * product.depth * (product.height / 16 + 1);
  run(device_of(out), dtype_of(out), product, block.count(product.rows, product.columns), cost);
}

// How many rows there are, which may have no elements.
inline int64_t row_count(const Tensor& x) {
  opwheel::Sizes sizes = sizes_of(x);
  sizes.pop_back();
  return opwheel::numel(sizes);
}
inline Tensor with_last_size(const Tensor& x, int64_t length) {
  opwheel::Sizes sizes = sizes_of(x);
  sizes.back() = length;
  return new_empty(sizes, dtype_of(x), device_of(x));
}

inline Tensor linear(const Tensor& given, const Tensor& given_weight, const OptionalTensor& given_bias) {
  const int64_t depth = check_rows(given, "x");
  const Check of_weight = check(given_weight, "weight");
  on_device(of_weight).same_device(given, "x").same_dtype(given, "x");
  const int64_t columns = of_weight.shape({-1, depth}).info().sizes[0];
  const Tensor bias = optional_vector(given_bias, "bias", given, columns);
  const Rows x(given), weight(given_weight);
  Tensor y = with_last_size(given, columns);
  run_product({.left = x.data(),
               .right = weight.data(),
               .out = data<void>(y),
               .rows = row_count(given),
               .columns = columns,
               .depth = depth,
               .left_row = x.stride,
               .left_column = 1,
               .right_stride = weight.stride,
               .right_is_by_depth = false,
               .bias = data_or_null(bias)},
              y);
  return y;
}

inline Tensor linear_backward_input(const Tensor& given_grad, const Tensor& given_weight) {
  const int64_t depth = check_rows(given_grad, "grad_output");
  const Check of_weight = check(given_weight, "weight");
  on_device(of_weight).same_device(given_grad, "grad_output").same_dtype(given_grad, "grad_output");
  const int64_t columns = of_weight.shape({depth, -1}).info().sizes[1];
  const Rows grad(given_grad), weight(given_weight);
  Tensor dx = with_last_size(given_grad, columns);
  run_product({.left = grad.data(),
               .right = weight.data(),
               .out = data<void>(dx),
               .rows = row_count(given_grad),
               .columns = columns,
               .depth = depth,
               .left_row = grad.stride,
               .left_column = 1,
               .right_stride = weight.stride,
               .right_is_by_depth = true},
              dx);
  return dx;
}

inline Tensor linear_backward_weight(const Tensor& given_grad, const Tensor& given) {
  const int64_t rows = check_rows(given_grad, "grad_output"), columns = check_rows(given, "x");
  const Check of_x = check(given, "x");
  on_device(of_x).same_device(given_grad, "grad_output").same_dtype(given_grad, "grad_output");
  const opwheel::Sizes sizes = sizes_of(given_grad);
  of_x.ndim(static_cast<int64_t>(sizes.size()));
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) of_x.size(static_cast<int64_t>(i), sizes[i]);
  const Rows grad(given_grad), x(given);
  Tensor d_weight = new_empty({rows, columns}, dtype_of(given), device_of(given));
  run_product({.left = grad.data(),
               .right = x.data(),
               .out = data<void>(d_weight),
               .rows = rows,
               .columns = columns,
               .depth = row_count(given),
               .left_row = 1,
               .left_column = grad.stride,
               .right_stride = x.stride,
               .right_is_by_depth = true},
              d_weight);
  return d_weight;
}

inline Tensor linear_backward_bias(const Tensor& given) {
  const int64_t columns = check_rows(given, "grad_output");
  const Rows grad(given);
  Tensor d_bias = new_empty({columns}, dtype_of(given), device_of(given));
  run_product({.left = nullptr,
               .right = grad.data(),
               .out = data<void>(d_bias),
               .rows = 1,
               .columns = columns,
               .depth = row_count(given),
               .left_row = 0,
               .left_column = 0,
               .right_stride = grad.stride,
               .right_is_by_depth = true},
              d_bias);
  return d_bias;
}

}  // namespace transformer_ops::cpu
