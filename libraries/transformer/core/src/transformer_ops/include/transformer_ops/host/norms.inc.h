// rms_norm, fused_add_rms_norm and layer_norm: arguments are checked, results allocated, kernels run.

inline Casting casting_of(std::string_view mode) {
  if (mode == "llama") return Casting::llama;
  if (mode == "gemma" || mode == "none") return Casting::gemma;
  fail("argument 'casting_mode' is '", mode, "', expected 'llama', 'gemma' or 'none'");
}

// y = rms_norm(x); or of the sum of x and a residual, which is written into `sum`.
inline void normalise(const Rows& x, const Rows* residual, const Tensor& weight, double eps, double offset,
                      Casting casting, const RowsToWrite& y, const RowsToWrite& sum, bool stream) {
  const RmsNorm arguments{.x = x.data(),
                          .weight = data_or_null(weight),
                          .y = y.data,
                          .length = x.length,
                          .x_stride = x.stride,
                          .y_stride = y.stride,
                          .eps = eps,
                          .offset = offset,
                          .casting = casting,
                          .residual = residual ? residual->data() : nullptr,
                          .sum = residual ? sum.data : nullptr,
                          .residual_stride = residual ? residual->stride : 0,
                          .sum_stride = residual ? sum.stride : 0,
                          .stream = stream,
                          .x_step = x.step,
                          .residual_step = residual ? residual->step : 1};
  run(device_of(x.tensor), dtype_of(x.tensor), arguments, x.rows, residual ? 2 * x.length : x.length);
}

inline Tensor rms_norm(const Tensor& x, const OptionalTensor& given_weight, double eps, double offset,
                       std::string_view casting_mode) {
  const int64_t n = check_rows(x, "x");
  const Tensor weight = optional_vector(given_weight, "weight", x, n);
  const Casting casting = casting_of(casting_mode);
  Tensor y = new_empty_like(x);
  const RowsToWrite rows(y, n);
  normalise(rows_to_read(x), nullptr, weight, eps, offset, casting, rows, rows, should_stream(y, 2));
  return y;
}

inline void rms_norm_out(const Tensor& x, const OptionalTensor& given_weight, double eps, double offset,
                         std::string_view casting_mode, Tensor& out) {
  const int64_t n = check_rows(x, "x");
  const Tensor weight = optional_vector(given_weight, "weight", x, n);
  const Casting casting = casting_of(casting_mode);
  check_out(out, x, "x");
  if (given_weight) check_apart(out, "out", *given_weight, "weight", kIsRead);
  const Rows y(out);
  normalise(rows_to_read(x), nullptr, weight, eps, offset, casting, y, y, should_stream(y, 2));
  copy_to(out, y);
}

inline std::array<Tensor, 2> norm_backward(const Tensor& given_grad, const Tensor* grad_sum, const Tensor& given,
                                           const OptionalTensor& given_weight, double eps, double offset,
                                           Casting casting) {
  const int64_t n = check_rows(given, "x");
  check_like(given_grad, "grad_output", given, "x");
  const Tensor weight = optional_vector(given_weight, "weight", given, n);
  const Rows grad(given_grad), x(given);
  std::optional<Rows> more;
  if (grad_sum != nullptr) {
    check_like(*grad_sum, "grad_sum", given, "x");
    more.emplace(*grad_sum);
  }
  const ScalarType dtype = dtype_of(given);
  const opwheel::Device device = device_of(given);
  Tensor dx = new_empty_like(given, dtype);
  const bool is_weighted = weight.handle() != nullptr;
  // Without sums over rows, a group for each.
  const int64_t parts = is_weighted ? part_count(x) : x.rows;
  std::optional<PartialSums> partial;
  if (is_weighted) partial.emplace(1, parts, n, dtype, device);
  const RmsNormBackward arguments{.grad = grad.data(),
                                  .x = x.data(),
                                  .weight = data_or_null(weight),
                                  .grad_sum = more ? more->data() : nullptr,
                                  .dx = data<void>(dx),
                                  .partial = partial ? partial->of(0) : nullptr,
                                  .length = n,
                                  .grad_stride = grad.stride,
                                  .x_stride = x.stride,
                                  .grad_sum_stride = more ? more->stride : 0,
                                  .rows = x.rows,
                                  .parts = parts,
                                  .eps = eps,
                                  .offset = offset,
                                  .casting = casting,
                                  .stream = should_stream(dx, more ? 4 : 3)};
  if (parts > 0) run(device, dtype, arguments, parts, 2 * n * (x.rows / parts));
  return {std::move(dx), partial ? partial->sums() : new_empty({0}, dtype, device)};
}

inline std::array<Tensor, 2> rms_norm_backward(const Tensor& grad_output, const Tensor& x, const OptionalTensor& weight,
                                               double eps, double offset, std::string_view casting_mode) {
  return norm_backward(grad_output, nullptr, x, weight, eps, offset, casting_of(casting_mode));
}

inline std::array<Tensor, 2> fused_add_rms_norm(const Tensor& x, const Tensor& residual,
                                                const OptionalTensor& given_weight, double eps, double offset,
                                                std::string_view casting_mode) {
  const int64_t n = check_rows(x, "x");
  check_like(residual, "residual", x, "x");
  const Tensor weight = optional_vector(given_weight, "weight", x, n);
  const Casting casting = casting_of(casting_mode);
  Tensor y = new_empty_like(x), sum = new_empty_like(x);
  const Rows residuals = rows_to_read(residual);
  const bool stream = should_stream(y, 4) && should_stream(sum, 4);
  normalise(rows_to_read(x), &residuals, weight, eps, offset, casting, {y, n}, {sum, n}, stream);
  return {std::move(y), std::move(sum)};
}

inline void fused_add_rms_norm_(Tensor& x, Tensor& residual, const OptionalTensor& given_weight, double eps,
                                double offset, std::string_view casting_mode) {
  const int64_t n = check_rows(x, "x");
  check_like(residual, "residual", x, "x");
  check_elements_apart(x, "x");
  check_elements_apart(residual, "residual");
  check_apart(residual, "residual", x, "x");
  if (given_weight) {
    check_apart(x, "x", *given_weight, "weight", kIsRead);
    check_apart(residual, "residual", *given_weight, "weight", kIsRead);
  }
  const Tensor weight = optional_vector(given_weight, "weight", x, n);
  const Casting casting = casting_of(casting_mode);
  const Rows y(x), sum(residual);  // copies where rows are not contiguous
  normalise(y, &sum, weight, eps, offset, casting, y, sum, false);
  copy_to(x, y);
  copy_to(residual, sum);
}

inline std::array<Tensor, 2> fused_add_rms_norm_backward(const Tensor& grad_y, const Tensor& grad_sum,
                                                         const Tensor& sum, const OptionalTensor& weight, double eps,
                                                         double offset, std::string_view casting_mode) {
  return norm_backward(grad_y, &grad_sum, sum, weight, eps, offset, casting_of(casting_mode));
}

inline Tensor layer_norm(const Tensor& given, const OptionalTensor& given_weight, const OptionalTensor& given_bias,
                         double eps) {
  const int64_t n = check_rows(given, "x");
  const Tensor weight = optional_vector(given_weight, "weight", given, n);
  const Tensor bias = optional_vector(given_bias, "bias", given, n);
  const Rows x = rows_to_read(given);
  Tensor y = new_empty_like(given);
  const LayerNorm arguments{.x = x.data(),
                            .weight = data_or_null(weight),
                            .bias = data_or_null(bias),
                            .y = data<void>(y),
                            .length = n,
                            .x_stride = x.stride,
                            .eps = eps,
                            .stream = should_stream(y, 2),
                            .x_step = x.step};
  run(device_of(given), dtype_of(given), arguments, x.rows, n);
  return y;
}

inline std::array<Tensor, 3> layer_norm_backward(const Tensor& given_grad, const Tensor& given,
                                                 const OptionalTensor& given_weight, double eps) {
  const int64_t n = check_rows(given, "x");
  check_like(given_grad, "grad_output", given, "x");
  const Tensor weight = optional_vector(given_weight, "weight", given, n);
  const Rows grad(given_grad), x(given);
  const ScalarType dtype = dtype_of(given);
  const opwheel::Device device = device_of(given);
  Tensor dx = new_empty_like(given, dtype);
  const int64_t parts = part_count(x);
  const PartialSums partial(2, parts, n, dtype, device);
  const LayerNormBackward arguments{.grad = grad.data(),
                                    .x = x.data(),
                                    .weight = data_or_null(weight),
                                    .dx = data<void>(dx),
                                    .partial = partial.of(0),
                                    .partial_bias = partial.of(1),
                                    .length = n,
                                    .grad_stride = grad.stride,
                                    .x_stride = x.stride,
                                    .rows = x.rows,
                                    .parts = parts,
                                    .eps = eps,
                                    .stream = should_stream(dx, 3)};
  if (parts > 0) run(device, dtype, arguments, parts, 2 * n * (x.rows / parts));
  auto [d_weight, d_bias] = partial.both_sums();
  return {std::move(dx), std::move(d_weight), std::move(d_bias)};
}
