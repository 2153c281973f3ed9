// swiglu and geglu: arguments are checked, results allocated, kernels run.

inline void check_halves(const Tensor& a, const Tensor& b) {
  check_rows(a, "a");
  check_like(b, "b", a, "a");
}

inline void gated_into(const RowsToWrite& y, const Rows& a, const Rows& b, Activation activation, bool stream) {
  const Gated arguments{.a = a.data(),
                        .b = b.data(),
                        .y = y.data,
                        .length = a.length,
                        .a_stride = a.stride,
                        .b_stride = b.stride,
                        .y_stride = y.stride,
                        .activation = activation,
                        .stream = stream};
  run(device_of(a.tensor), dtype_of(a.tensor), arguments, a.rows, 4 * a.length);
}

inline Tensor gated(const Tensor& a, const Tensor& b, Activation activation) {
  check_halves(a, b);
  if (opwheel::share_strides({&a, &b})) {
    Tensor y = opwheel::new_empty_strided_like(a);
    const Rows of_a = Rows::in_memory_order(a), of_b = Rows::in_memory_order(b);
    gated_into({y, of_a.length}, of_a, of_b, activation, should_stream(y, 3));
    return y;
  }
  Tensor y = new_empty_like(a);
  const Rows of_a(a), of_b(b);
  gated_into({y, of_a.length}, of_a, of_b, activation, should_stream(y, 3));
  return y;
}

inline std::array<Tensor, 2> gated_backward(const Tensor& given_grad, const Tensor& given_a, const Tensor& given_b,
                                            Activation activation) {
  check_halves(given_a, given_b);
  check_like(given_grad, "grad_output", given_a, "a");
  const bool alike = opwheel::share_strides({&given_a, &given_b, &given_grad});
  const auto rows_of = [&](const Tensor& given) { return alike ? Rows::in_memory_order(given) : Rows(given); };
  const auto new_result = [&] { return alike ? opwheel::new_empty_strided_like(given_a) : new_empty_like(given_a); };
  const Rows grad = rows_of(given_grad), a = rows_of(given_a), b = rows_of(given_b);
  Tensor da = new_result(), db = new_result();
  const GatedBackward arguments{.grad = grad.data(),
                                .a = a.data(),
                                .b = b.data(),
                                .da = data<void>(da),
                                .db = data<void>(db),
                                .length = a.length,
                                .grad_stride = grad.stride,
                                .a_stride = a.stride,
                                .b_stride = b.stride,
                                .activation = activation,
                                .stream = should_stream(da, 5) && should_stream(db, 5)};
  run(device_of(given_a), dtype_of(given_a), arguments, a.rows, 6 * a.length);
  return {std::move(da), std::move(db)};
}

inline Tensor swiglu(const Tensor& a, const Tensor& b) { return gated(a, b, Activation::silu); }
inline void swiglu_out(const Tensor& a, const Tensor& b, Tensor& out) {
  check_halves(a, b);
  check_out(out, a, "a");
  check_apart(out, "out", b, "b", kIsRead);
  if (opwheel::share_strides({&out, &a, &b})) {
    const Rows y = Rows::in_memory_order(out);
    gated_into(y, Rows::in_memory_order(a), Rows::in_memory_order(b), Activation::silu, should_stream(y, 3));
    return;
  }
  const Rows y(out);
  gated_into(y, Rows(a), Rows(b), Activation::silu, should_stream(y, 3));
  copy_to(out, y);
}
inline std::array<Tensor, 2> swiglu_backward(const Tensor& grad_output, const Tensor& a, const Tensor& b) {
  return gated_backward(grad_output, a, b, Activation::silu);
}

inline Activation gelu_of(std::string_view approximate) {
  if (approximate == "tanh") return Activation::gelu_tanh;
  if (approximate == "none") return Activation::gelu;
  fail("argument 'approximate' is '", approximate, "', expected 'tanh' or 'none'");
}
inline Tensor geglu(const Tensor& a, const Tensor& b, std::string_view approximate) {
  return gated(a, b, gelu_of(approximate));
}
inline std::array<Tensor, 2> geglu_backward(const Tensor& grad_output, const Tensor& a, const Tensor& b,
                                            std::string_view approximate) {
  return gated_backward(grad_output, a, b, gelu_of(approximate));
}
