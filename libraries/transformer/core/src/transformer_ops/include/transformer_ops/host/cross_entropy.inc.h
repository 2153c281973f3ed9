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

enum class Reduction { none, sum, mean };

inline Reduction reduction_of(std::string_view name) {
  if (name == "none") return Reduction::none;
  if (name == "sum") return Reduction::sum;
  if (name == "mean") return Reduction::mean;
  fail("argument 'reduction' is '", name, "', expected 'mean', 'sum' or 'none'");
}

// What the loss of a row depends on, apart from its logits and target.
struct LossOptions {
  int64_t ignore_index;
  double lse_square_scale, label_smoothing, softcap;

  void check() const {
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
      fail("argument 'label_smoothing' is ", label_smoothing, ", expected 0 to 1");
    }
    if (!(softcap >= 0 && std::isfinite(softcap))) {
      fail("argument 'softcap' is ", softcap, ", expected a positive number, or 0 for none");
    }
  }
};

// The weights of classes, in the dtype that is computed in.
inline Tensor class_weights(const OptionalTensor& given, std::string_view name, const Tensor& input, int64_t classes) {
  if (!given) return Tensor();
  const ScalarType dtype = dtype_of(input), accumulated = wide(dtype);
  on_device(check(*given, name)).same_device(input, "input").shape({classes});
  if (dtype_of(*given) == accumulated) return contiguous(*given);
  check(*given, name).same_dtype(input, "input");
  const Tensor narrow = contiguous(*given);
  Tensor widened = new_empty({classes}, accumulated, device_of(input));
  run(device_of(input), dtype, Accumulate{data<void>(narrow), data<void>(widened), 1, false}, classes, 1);
  return widened;
}
// One number of the dtype that is computed in for each row.
inline Tensor of_rows(const Tensor& given, std::string_view name, const Tensor& input, int64_t rows) {
  on_device(check(given, name)).same_device(input, "input").dtype(wide(dtype_of(input))).shape({rows});
  return contiguous(given);
}
inline Tensor token_weights(const OptionalTensor& given, const Tensor& input, int64_t rows) {
  return given ? of_rows(*given, "token_weight", input, rows) : Tensor();
}
// What is kept of all rows for their gradients, in the dtype that is computed in: log(sum(exp)) of each, and what that
// is rounded by; then, of a mean, its divisors (LossTotal).
struct Kept {
  Tensor tensor;
  char *lse, *lse_rest, *divisors;
  char* losses = nullptr;

  static Kept new_for(const Tensor& input, int64_t rows, bool is_mean) {
    return {new_empty({size(rows, is_mean)}, wide(dtype_of(input)), device_of(input)), rows, is_mean};
  }
  // With memory behind it for the losses of the rows, which nothing reads later: one allocation in the place of two.
  static Kept new_with_losses(const Tensor& input, int64_t rows, bool is_mean) {
    const int64_t count = size(rows, is_mean);
    const Tensor all = new_empty({count + rows}, wide(dtype_of(input)), device_of(input));
    Kept kept(opwheel::first_of(all, count), rows, is_mean);
    kept.losses = kept.lse + count * opwheel::element_size(opwheel::code_of(dtype_of(all)));
    return kept;
  }
  static Kept checked(const Tensor& given, const Tensor& input, int64_t rows, bool is_mean) {
    const Check named = on_device(check(given, "kept"));
    named.same_device(input, "input").dtype(wide(dtype_of(input))).shape({size(rows, is_mean)});
    return {contiguous(given), rows, is_mean};
  }

 private:
  Kept(Tensor given, int64_t rows, bool is_mean) : tensor(std::move(given)), lse(data<char>(tensor)) {
    const int64_t bytes = rows * opwheel::element_size(opwheel::code_of(dtype_of(tensor)));
    lse_rest = lse + bytes;
    divisors = is_mean ? lse_rest + bytes : nullptr;
  }
  static int64_t size(int64_t rows, bool is_mean) { return 2 * rows + (is_mean ? 2 : 0); }
};

inline std::array<Tensor, 2> cross_entropy_rows(const Tensor& input, const Tensor& given_target,
                                                const OptionalTensor& given_weight, int64_t ignore_index,
                                                double lse_square_scale, double label_smoothing, double softcap,
                                                std::string_view reduction_name,
                                                const OptionalTensor& given_token_weight) {
  const Check checked = on_device(check(input, "input")).dtype(opwheel::floating).ndim(2);
  const int64_t rows = checked.info().sizes[0], classes = checked.info().sizes[1];
  LossOptions{ignore_index, lse_square_scale, label_smoothing, softcap}.check();
  const Reduction reduction = reduction_of(reduction_name);
  const Tensor weight = class_weights(given_weight, "weight", input, classes);
  const Tensor token_weight = token_weights(given_token_weight, input, rows);
  const Targets target(given_target, input, rows, classes, ignore_index);
  const Rows x = rows_to_read(input);
  const opwheel::Device device = device_of(input);
  const ScalarType dtype = dtype_of(input), accumulated = wide(dtype);
  const bool is_reduced = reduction != Reduction::none;
  Tensor loss = new_empty(is_reduced ? opwheel::Sizes{} : opwheel::Sizes{rows}, accumulated, device);
  Kept kept =
      is_reduced ? Kept::new_with_losses(input, rows, reduction == Reduction::mean) : Kept::new_for(input, rows, false);
  const CrossEntropy arguments{.x = x.data(),
                               .weight = data_or_null(weight),
                               .token_weight = data_or_null(token_weight),
                               .target = target.data,
                               .loss = is_reduced ? kept.losses : data<void>(loss),
                               .lse = kept.lse,
                               .lse_rest = kept.lse_rest,
                               .length = classes,
                               .x_stride = x.stride,
                               .ignore_index = ignore_index,
                               .lse_square_scale = is_reduced ? 0 : lse_square_scale,  // it has a divisor of its own
                               .label_smoothing = label_smoothing,
                               .softcap = softcap,
                               .x_step = x.step};
  run(device, dtype, arguments, rows, 4 * classes);
  if (is_reduced) {
    const LossTotal total{.row_loss = arguments.loss,
                          .lse = kept.lse,
                          .weight = arguments.weight,
                          .token_weight = arguments.token_weight,
                          .target = target.data,
                          .loss = data<void>(loss),
                          .divisors = kept.divisors,
                          .rows = rows,
                          .ignore_index = ignore_index,
                          .lse_square_scale = lse_square_scale};
    run(device, accumulated, total, 1, rows);
  }
  return {std::move(loss), std::move(kept.tensor)};
}

inline Tensor cross_entropy_backward(const Tensor& given_grad, const Tensor& input, const Tensor& given_target,
                                     const OptionalTensor& given_weight, const Tensor& given_kept, int64_t ignore_index,
                                     double lse_square_scale, double label_smoothing, double softcap,
                                     std::string_view reduction_name, const OptionalTensor& given_token_weight) {
  const Check checked = on_device(check(input, "input")).dtype(opwheel::floating).ndim(2);
  const int64_t rows = checked.info().sizes[0], classes = checked.info().sizes[1];
  LossOptions{ignore_index, lse_square_scale, label_smoothing, softcap}.check();
  const Reduction reduction = reduction_of(reduction_name);
  const bool is_reduced = reduction != Reduction::none;
  if (is_reduced) {
    on_device(check(given_grad, "grad_loss")).same_device(input, "input").dtype(wide(dtype_of(input))).shape({});
  }
  const Tensor grad = is_reduced ? opwheel::share(given_grad) : of_rows(given_grad, "grad_loss", input, rows);
  const Kept kept = Kept::checked(given_kept, input, rows, reduction == Reduction::mean);
  const Tensor weight = class_weights(given_weight, "weight", input, classes);
  const Tensor token_weight = token_weights(given_token_weight, input, rows);
  const Targets target(given_target, input, rows, classes, ignore_index);
  const Rows x(input);
  Tensor dx = new_empty_like(input);
  const CrossEntropyBackward arguments{.grad = data<void>(grad),
                                       .divisors = kept.divisors,
                                       .x = x.data(),
                                       .weight = data_or_null(weight),
                                       .token_weight = data_or_null(token_weight),
                                       .lse = kept.lse,
                                       .lse_rest = kept.lse_rest,
                                       .target = target.data,
                                       .dx = data<void>(dx),
                                       .length = classes,
                                       .x_stride = x.stride,
                                       .ignore_index = ignore_index,
                                       .lse_square_scale = lse_square_scale,
                                       .label_smoothing = label_smoothing,
                                       .softcap = softcap,
                                       .grad_per_row = !is_reduced};
  run(device_of(input), dtype_of(input), arguments, rows, 4 * classes);
  return dx;
}
