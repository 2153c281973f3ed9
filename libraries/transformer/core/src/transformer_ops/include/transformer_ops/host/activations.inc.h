// swiglu and geglu: arguments are checked, results allocated, kernels run.

inline void check_halves(const Tensor& a, const Tensor& b) {
  check_rows(a, "a");
  check_like(b, "b", a, "a");
}

inline void gated_into(const Rows& y, const Tensor& given_a, const Tensor& given_b, Activation activation) {
  const Rows a(given_a), b(given_b);
  const Gated arguments{.a = a.data(),
                        .b = b.data(),
                        .y = y.data(),
                        .length = a.length,
                        .a_stride = a.stride,
                        .b_stride = b.stride,
                        .y_stride = y.stride,
                        .activation = activation,
                        .stream = should_stream(y, 3)};
  run(device_of(given_a), dtype_of(given_a), arguments, a.rows, 4 * a.length);
}

inline Tensor gated(const Tensor& a, const Tensor& b, Activation activation) {
  check_halves(a, b);
  Tensor y = new_empty(sizes_of(a), dtype_of(a), device_of(a));
  gated_into(Rows(y), a, b, activation);
  return y;
}

inline std::array<Tensor, 2> gated_backward(const Tensor& given_grad, const Tensor& given_a, const Tensor& given_b,
                                            Activation activation) {
  check_halves(given_a, given_b);
  check_like(given_grad, "grad_output", given_a, "a");
  const Rows grad(given_grad), a(given_a), b(given_b);
  Tensor da = new_empty(sizes_of(given_a), dtype_of(given_a), device_of(given_a)), db = new_empty_like(da);
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
                                .stream = should_stream(Rows(da), 5) && should_stream(Rows(db), 5)};
  run(device_of(given_a), dtype_of(given_a), arguments, a.rows, 6 * a.length);
  return {std::move(da), std::move(db)};
}

inline Tensor swiglu(const Tensor& a, const Tensor& b) { return gated(a, b, Activation::silu); }
inline void swiglu_out(const Tensor& a, const Tensor& b, Tensor& out) {
  check_halves(a, b);
  check_out(out, a, "a");
  check_apart(out, "out", b, "b", kIsRead);
  const Rows y(out);
  gated_into(y, a, b, Activation::silu);
  copy_to(out, y.tensor);  // where Rows had to make a copy
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
