// cross_entropy_rows: arguments are checked, results allocated, kernels run.

struct Targets {
  Tensor tensor;
  const int64_t* data;

  Targets(const Tensor& given, const Tensor& input, int64_t rows, int64_t classes, int64_t ignore_index) {
    on_device(check(given, "target")).same_device(input, "input").dtype(ScalarType::Long).shape({rows});
    tensor = contiguous(given);
    data = opwheel::data<int64_t>(tensor);
    check_targets(data, rows, classes, ignore_index);
  }
};

inline void check_numbers(double label_smoothing, double softcap) {
  if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
    fail("argument 'label_smoothing' is ", label_smoothing, ", expected 0 to 1");
  }
  if (!(softcap >= 0 && std::isfinite(softcap))) {
    fail("argument 'softcap' is ", softcap, ", expected a positive number, or 0 for none");
  }
}

inline std::array<Tensor, 4> cross_entropy_rows(const Tensor& input, const Tensor& given_target,
                                                const OptionalTensor& given_weight, int64_t ignore_index,
                                                double lse_square_scale, double label_smoothing, double softcap) {
  const Check checked = on_device(check(input, "input")).dtype(opwheel::floating).ndim(2);
  const int64_t rows = checked.info().sizes[0], classes = checked.info().sizes[1];
  check_numbers(label_smoothing, softcap);
  const Tensor weight = optional_vector(given_weight, "weight", input, classes, "input");
  const Targets target(given_target, input, rows, classes, ignore_index);
  const Rows x(input);
  const auto of_rows = [&] { return new_empty({rows}, wide(dtype_of(input)), device_of(input)); };
  Tensor loss = of_rows(), z_loss = of_rows(), lse = of_rows(), lse_rest = of_rows();
  const CrossEntropy arguments{.x = x.data(),
                               .weight = data_or_null(weight),
                               .target = target.data,
                               .loss = data<void>(loss),
                               .z_loss = data<void>(z_loss),
                               .lse = data<void>(lse),
                               .lse_rest = data<void>(lse_rest),
                               .length = classes,
                               .x_stride = x.stride,
                               .ignore_index = ignore_index,
                               .lse_square_scale = lse_square_scale,
                               .label_smoothing = label_smoothing,
                               .softcap = softcap};
  run(device_of(input), dtype_of(input), arguments, rows, 4 * classes);
  return {std::move(loss), std::move(z_loss), std::move(lse), std::move(lse_rest)};
}

inline Tensor cross_entropy_backward(const Tensor& given_grad, const Tensor& given_grad_z, const Tensor& input,
                                     const Tensor& given_target, const OptionalTensor& given_weight,
                                     const Tensor& given_lse, const Tensor& given_lse_rest, int64_t ignore_index,
                                     double lse_square_scale, double label_smoothing, double softcap) {
  const Check checked = on_device(check(input, "input")).dtype(opwheel::floating).ndim(2);
  const int64_t rows = checked.info().sizes[0], classes = checked.info().sizes[1];
  const auto of_rows = [&](const Tensor& given, std::string_view name) {
    on_device(check(given, name)).same_device(input, "input").dtype(wide(dtype_of(input))).shape({rows});
    return contiguous(given);
  };
  const Tensor grad = of_rows(given_grad, "grad_loss"), grad_z = of_rows(given_grad_z, "grad_z_loss");
  const Tensor lse = of_rows(given_lse, "lse"), lse_rest = of_rows(given_lse_rest, "lse_rest");
  check_numbers(label_smoothing, softcap);
  const Tensor weight = optional_vector(given_weight, "weight", input, classes, "input");
  const Targets target(given_target, input, rows, classes, ignore_index);
  const Rows x(input);
  Tensor dx = new_empty(sizes_of(input), dtype_of(input), device_of(input));
  const CrossEntropyBackward arguments{.grad = data<void>(grad),
                                       .grad_z = data<void>(grad_z),
                                       .x = x.data(),
                                       .weight = data_or_null(weight),
                                       .lse = data<void>(lse),
                                       .lse_rest = data<void>(lse_rest),
                                       .target = target.data,
                                       .dx = data<void>(dx),
                                       .length = classes,
                                       .x_stride = x.stride,
                                       .ignore_index = ignore_index,
                                       .lse_square_scale = lse_square_scale,
                                       .label_smoothing = label_smoothing,
                                       .softcap = softcap,
                                       .grad_per_row = true};
  run(device_of(input), dtype_of(input), arguments, rows, 4 * classes);
  return dx;
}
