// The loss of a linear layer's results, and scaled for its gradients. Logits are made a few rows at a time: never are
// all in memory. The products of matrices are the backend's, which defines before it includes this:
//
//     int64_t rows_at_once(ScalarType, int64_t rows, int64_t classes);
//     Tensor logits_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& buffer);
//     Tensor new_buffer(int64_t rows, int64_t classes, ScalarType, opwheel::Device);
//     void matmul(const Tensor& out, const Tensor& a, const Tensor& b);
//     void add_product(const Tensor& sum, const Tensor& a, const Tensor& b, ScalarType, bool is_first);

// The sums of the columns of the first rows are written, those of further rows are added.
inline void add_columns(const Tensor& sums, const Tensor& x, ScalarType dtype, bool is_first) {
  const opwheel::TensorInfo info(x);
  const ColumnSums arguments{data<void>(x), data<void>(sums), info.sizes[0], info.sizes[1], !is_first};
  run(device_of(x), dtype, arguments, info.sizes[1], info.sizes[0]);
}

// A factor of a product: a copy only where neither its rows nor its columns are next to each other in memory, as
// products are made of. Products copy such factors themselves, each time: 16-bit ones slowly.
inline Tensor factor_of(const Tensor& given, bool is_read_once) {
  if (is_read_once && dtype_of(given) == wide(dtype_of(given))) return opwheel::share(given);
  const opwheel::TensorInfo info(given);
  const auto lies = [&](int64_t inner, int64_t outer) {
    return info.strides[inner] == 1 && info.strides[outer] >= std::max<int64_t>(info.sizes[inner], 1);
  };
  return lies(1, 0) || lies(0, 1) ? opwheel::share(given) : contiguous(given);
}

// The arguments, checked. Where bias, class_weight or token_weight is not given, it has no handle.
struct LinearLoss {
  LossOptions options;
  ScalarType dtype, accumulated;  // of the tensors, and the dtype that is computed in
  opwheel::Device device;
  int64_t rows, width, classes;
  Tensor input, weight, bias, class_weight, token_weight;
  Targets target;

  LinearLoss(const Tensor& given_input, const Tensor& given_weight, const Tensor& given_target,
             const OptionalTensor& given_bias, const LossOptions& given_options,
             const OptionalTensor& given_class_weight, const OptionalTensor& given_token_weight)
      : options(checked(given_input, given_weight, given_options)),
        dtype(dtype_of(given_input)),
        accumulated(wide(dtype)),
        device(device_of(given_input)),
        rows(opwheel::TensorInfo(given_input).sizes[0]),
        width(opwheel::TensorInfo(given_input).sizes[1]),
        classes(opwheel::TensorInfo(given_weight).sizes[0]),
        input(opwheel::share(given_input)),
        weight(opwheel::share(given_weight)),
        bias(optional_vector(given_bias, "bias", given_input, classes, "input")),
        class_weight(class_weights(given_class_weight, "class_weight", given_input, classes)),
        token_weight(token_weights(given_token_weight, given_input, rows)),
        target(given_target, given_input, rows, classes, options.ignore_index) {}

  bool has_bias() const { return bias.handle() != nullptr; }
  Tensor new_wide(const opwheel::Sizes& sizes) const { return new_empty(sizes, accumulated, device); }

 private:
  static const LossOptions& checked(const Tensor& input, const Tensor& weight, const LossOptions& options) {
    const Check matrix = on_device(check(input, "input")).dtype(opwheel::floating).ndim(2);
    const Check of_weight = on_device(check(weight, "weight")).same_device(input, "input").same_dtype(input, "input");
    of_weight.ndim(2).size(1, matrix.info().sizes[1]);
    options.check();
    return options;
  }
};

// Of the sum of the rows' losses, each times `grad` if that is not null. What is summed over rows is in the dtype that
// is computed in. All are to be multiplied by `factor`, which is no part of them because 16-bit numbers would be too
// small: what arrives at the loss may be a large factor, made so that they are not.
struct GradientsOfLoss {
  Tensor input, weight, bias, factor, divisors;
  const char* grad;

  GradientsOfLoss(const LinearLoss& of, const char* grad, bool is_mean)
      : input(new_empty({of.rows, of.width}, of.dtype, of.device)),
        weight(of.new_wide({of.classes, of.width})),
        bias(of.new_wide({of.has_bias() ? of.classes : 0})),
        factor(of.new_wide({})),
        divisors(of.new_wide({2})),
        grad(grad) {
    if (of.rows == 0) {
      OPWHEEL_SHIM(aoti_torch_zero_(weight.handle()));
      OPWHEEL_SHIM(aoti_torch_zero_(bias.handle()));
    }
    const LossScale scale{.grad = grad,
                          .weight = data_or_null(of.class_weight),
                          .token_weight = data_or_null(of.token_weight),
                          .target = of.target.data,
                          .divisors = data<void>(divisors),
                          .factor = data<void>(factor),
                          .rows = of.rows,
                          .classes = of.classes,
                          .ignore_index = of.options.ignore_index,
                          .is_mean = is_mean,
                          .is_narrow = of.dtype != of.accumulated};
    run(of.device, of.accumulated, scale, 1, of.rows);
  }
};

// The losses of rows that are written, with z-losses of a scale: 0 where these are added to the sum of all rows.
struct RowLosses {
  char* data = nullptr;
  double lse_square_scale = 0;
};

// `losses` and what is kept are written, or, where they are null, what is kept is read. The logits' gradients take the
// logits' place.
inline void linear_cross_entropy(const LinearLoss& of, const RowLosses& losses, const Kept& kept,
                                 GradientsOfLoss* gradients) {
  const int64_t at_once = rows_at_once(of.dtype, of.rows, of.classes);
  const int64_t bytes = opwheel::element_size(opwheel::code_of(of.accumulated));
  const bool are_read_once = of.rows <= at_once && gradients == nullptr;
  const Tensor input = factor_of(of.input, are_read_once), weight = factor_of(of.weight, are_read_once);
  const Tensor buffer = new_buffer(std::min(at_once, of.rows), of.classes, of.dtype, of.device);
  for (int64_t begin = 0; begin < of.rows; begin += at_once) {
    const int64_t count = std::min(at_once, of.rows - begin);
    const auto at = [&](auto* of_rows) { return of_rows == nullptr ? nullptr : of_rows + begin * bytes; };
    const void* const tokens = at(static_cast<const char*>(data_or_null(of.token_weight)));
    const Tensor x = opwheel::rows_of(input, begin, count), some = logits_of(x, weight, of.bias, buffer);
    if (losses.data != nullptr) {
      const CrossEntropy forward{.x = data<void>(some),
                                 .weight = data_or_null(of.class_weight),
                                 .token_weight = tokens,
                                 .target = of.target.data + begin,
                                 .loss = at(losses.data),
                                 .lse = at(kept.lse),
                                 .lse_rest = at(kept.lse_rest),
                                 .length = of.classes,
                                 .x_stride = of.classes,
                                 .ignore_index = of.options.ignore_index,
                                 .lse_square_scale = losses.lse_square_scale,
                                 .label_smoothing = of.options.label_smoothing,
                                 .softcap = of.options.softcap};
      run(of.device, of.dtype, forward, count, 4 * of.classes);
    }
    if (gradients == nullptr) continue;
    const CrossEntropyBackward backward{.grad = at(gradients->grad),
                                        .divisors = data<void>(gradients->divisors),
                                        .x = data<void>(some),
                                        .weight = data_or_null(of.class_weight),
                                        .token_weight = tokens,
                                        .lse = at(kept.lse),
                                        .lse_rest = at(kept.lse_rest),
                                        .target = of.target.data + begin,
                                        .dx = data<void>(some),
                                        .length = of.classes,
                                        .x_stride = of.classes,
                                        .ignore_index = of.options.ignore_index,
                                        .lse_square_scale = of.options.lse_square_scale,
                                        .label_smoothing = of.options.label_smoothing,
                                        .softcap = of.options.softcap,
                                        .grad_per_row = true};
    run(of.device, of.dtype, backward, count, 4 * of.classes);
    matmul(opwheel::rows_of(gradients->input, begin, count), some, weight);
    add_product(gradients->weight, opwheel::transposed(some), x, of.dtype, begin == 0);
    if (of.has_bias()) add_columns(gradients->bias, some, of.dtype, begin == 0);
  }
}

// The loss of all rows, and of these `gradients`, which may be null.
inline Tensor reduced_loss(const LinearLoss& of, bool is_mean, GradientsOfLoss* gradients) {
  const Kept kept = Kept::new_with_losses(of.input, of.rows, is_mean);
  linear_cross_entropy(of, {kept.losses}, kept, gradients);
  Tensor loss = of.new_wide({});
  const LossTotal total{.row_loss = kept.losses,
                        .lse = kept.lse,
                        .weight = data_or_null(of.class_weight),
                        .token_weight = data_or_null(of.token_weight),
                        .target = of.target.data,
                        .loss = data<void>(loss),
                        .divisors = kept.divisors,
                        .rows = of.rows,
                        .ignore_index = of.options.ignore_index,
                        .lse_square_scale = of.options.lse_square_scale};
  run(of.device, of.accumulated, total, 1, of.rows);
  return loss;
}

inline bool divides(std::string_view reduction) {
  if (reduction != "mean" && reduction != "sum") {
    fail("argument 'reduction' is '", reduction,
         "', expected 'mean' or 'sum'; for 'none' there is linear_cross_entropy_rows");
  }
  return reduction == "mean";
}

inline Tensor fused_linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target,
                                         const OptionalTensor& bias, int64_t ignore_index, double lse_square_scale,
                                         double label_smoothing, std::string_view reduction, double softcap,
                                         const OptionalTensor& class_weight, const OptionalTensor& token_weight) {
  const LossOptions options{ignore_index, lse_square_scale, label_smoothing, softcap};
  const bool is_mean = divides(reduction);
  const LinearLoss loss(input, weight, target, bias, options, class_weight, token_weight);
  return reduced_loss(loss, is_mean, nullptr);
}

inline std::array<Tensor, 5> fused_linear_cross_entropy_training(const Tensor& input, const Tensor& weight,
                                                                 const Tensor& target, const OptionalTensor& bias,
                                                                 int64_t ignore_index, double lse_square_scale,
                                                                 double label_smoothing, std::string_view reduction,
                                                                 double softcap, const OptionalTensor& class_weight,
                                                                 const OptionalTensor& token_weight) {
  const LossOptions options{ignore_index, lse_square_scale, label_smoothing, softcap};
  const bool is_mean = divides(reduction);
  const LinearLoss loss(input, weight, target, bias, options, class_weight, token_weight);
  GradientsOfLoss gradients(loss, nullptr, is_mean);
  Tensor value = reduced_loss(loss, is_mean, &gradients);
  return {std::move(value), std::move(gradients.input), std::move(gradients.weight), std::move(gradients.bias),
          std::move(gradients.factor)};
}

inline std::array<Tensor, 2> linear_cross_entropy_rows(const Tensor& input, const Tensor& weight, const Tensor& target,
                                                       const OptionalTensor& bias, int64_t ignore_index,
                                                       double lse_square_scale, double label_smoothing, double softcap,
                                                       const OptionalTensor& class_weight,
                                                       const OptionalTensor& token_weight) {
  const LossOptions options{ignore_index, lse_square_scale, label_smoothing, softcap};
  const LinearLoss loss(input, weight, target, bias, options, class_weight, token_weight);
  Tensor row_loss = loss.new_wide({loss.rows});
  Kept kept = Kept::new_for(input, loss.rows, false);
  linear_cross_entropy(loss, {data<char>(row_loss), lse_square_scale}, kept, nullptr);
  return {std::move(row_loss), std::move(kept.tensor)};
}

// y = x * factor, whose rows are next to each other; x is of the dtype of y or of the one that is computed in.
inline void write_times(const Tensor& y, const Rows& x, const Tensor& factor) {
  const ScalarType dtype = dtype_of(y);
  const bool is_wide = dtype_of(x.tensor) == wide(dtype);
  const Scaled arguments{x.data(), data<void>(factor), data<void>(y), x.length, x.stride, is_wide};
  run(device_of(y), dtype, arguments, x.rows, x.length);
}
inline Tensor times(const Tensor& x, const Tensor& factor, ScalarType dtype) {
  Tensor y = new_empty_like(x, dtype);
  write_times(y, Rows(x), factor);
  return y;
}

// From the gradients of the rows, whatever they are: the logits are made again.
inline std::array<Tensor, 3> linear_cross_entropy_backward(
    const Tensor& given_grad, const Tensor& input, const Tensor& weight, const Tensor& target,
    const OptionalTensor& bias, const Tensor& given_kept, int64_t ignore_index, double lse_square_scale,
    double label_smoothing, double softcap, const OptionalTensor& class_weight, const OptionalTensor& token_weight) {
  const LossOptions options{ignore_index, lse_square_scale, label_smoothing, softcap};
  const LinearLoss loss(input, weight, target, bias, options, class_weight, token_weight);
  const Tensor grad = of_rows(given_grad, "grad_loss", input, loss.rows);
  GradientsOfLoss gradients(loss, data<char>(grad), false);
  linear_cross_entropy(loss, {}, Kept::checked(given_kept, input, loss.rows, false), &gradients);
  if (loss.dtype == loss.accumulated) {
    return {std::move(gradients.input), std::move(gradients.weight), std::move(gradients.bias)};
  }
  const auto scaled = [&](const Tensor& x) { return times(x, gradients.factor, loss.dtype); };
  return {scaled(gradients.input), scaled(gradients.weight), scaled(gradients.bias)};
}

inline void check_scaled(const Tensor& x, const Tensor& factor, const Tensor& like) {
  check_rows(x, "x");
  const ScalarType dtype = dtype_of(like);
  on_device(check(like, "like")).same_device(x, "x").dtype(opwheel::floating).same_shape(x, "x");
  if (dtype_of(x) != wide(dtype)) check(x, "x").dtype(dtype);
  on_device(check(factor, "factor")).same_device(x, "x").dtype(wide(dtype)).shape({});
}

inline Tensor scaled(const Tensor& x, const Tensor& factor, const Tensor& like) {
  check_scaled(x, factor, like);
  return times(x, factor, dtype_of(like));
}

inline void scaled_(Tensor& x, const Tensor& factor, const Tensor& like) {
  check_scaled(x, factor, like);
  check(x, "x").same_dtype(like, "like");
  check_elements_apart(x, "x");
  check_apart(x, "x", factor, "factor", kIsRead);
  const Tensor y = contiguous(x);  // a copy, where it is not
  write_times(y, Rows(y), factor);
  copy_to(x, y);
}
