// fused_linear_cross_entropy, and scaled for its gradients, but for the computation itself, linear_cross_entropy(),
// which is the backend's.

struct LinearSizes {
  int64_t rows, width, classes;
};

inline LinearSizes check_linear(const Tensor& input, const Tensor& weight, double label_smoothing,
                                std::string_view reduction, double softcap) {
  const Check checked = on_device(check(input, "input")).dtype(opwheel::floating).ndim(2);
  const int64_t rows = checked.info().sizes[0], width = checked.info().sizes[1];
  const Check of_weight = on_device(check(weight, "weight")).same_device(input, "input").same_dtype(input, "input");
  of_weight.ndim(2).size(1, width);
  check_numbers(label_smoothing, softcap);
  if (reduction != "mean" && reduction != "sum") {
    fail("argument 'reduction' is '", reduction, "', expected 'mean' or 'sum'");
  }
  return {rows, width, of_weight.info().sizes[0]};
}

// The loss of input @ weight^T + bias, whose rows are made a few at a time: never are all logits in memory. With
// `trains`, their gradients take their place, and those of the inputs follow at once: d_input, d_weight, d_bias and
// their common factor. It is not multiplied in, because 16-bit numbers would be too small: the gradient that arrives at
// the loss may be a large factor, made so that they are not. What is summed over rows is in the dtype that is computed
// in.
inline std::array<Tensor, 5> linear_cross_entropy(const Tensor& given_input, const Tensor& given_weight,
                                                  const Tensor& given_target, const OptionalTensor& given_bias,
                                                  int64_t ignore_index, double lse_square_scale, double label_smoothing,
                                                  std::string_view reduction, double softcap, bool trains);

inline Tensor fused_linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target,
                                         const OptionalTensor& bias, int64_t ignore_index, double lse_square_scale,
                                         double label_smoothing, std::string_view reduction, double softcap) {
  auto results = linear_cross_entropy(input, weight, target, bias, ignore_index, lse_square_scale, label_smoothing,
                                      reduction, softcap, false);
  return std::move(results[0]);
}
inline std::array<Tensor, 5> fused_linear_cross_entropy_training(const Tensor& input, const Tensor& weight,
                                                                 const Tensor& target, const OptionalTensor& bias,
                                                                 int64_t ignore_index, double lse_square_scale,
                                                                 double label_smoothing, std::string_view reduction,
                                                                 double softcap) {
  return linear_cross_entropy(input, weight, target, bias, ignore_index, lse_square_scale, label_smoothing, reduction,
                              softcap, true);
}

inline Tensor scaled(const Tensor& given, const Tensor& factor, const Tensor& like) {
  const int64_t n = check_rows(given, "x");
  const ScalarType dtype = dtype_of(like);
  on_device(check(like, "like")).same_device(given, "x").dtype(opwheel::floating).same_shape(given, "x");
  const bool is_wide = dtype_of(given) == wide(dtype);
  if (!is_wide) check(given, "x").dtype(dtype);
  on_device(check(factor, "factor")).same_device(given, "x").dtype(wide(dtype)).shape({});
  const Rows x(given);
  Tensor y = new_empty(sizes_of(given), dtype, device_of(given));
  const Scaled arguments{x.data(), data<void>(factor), data<void>(y), n, x.stride, is_wide};
  run(device_of(given), dtype, arguments, x.rows, n);
  return y;
}
