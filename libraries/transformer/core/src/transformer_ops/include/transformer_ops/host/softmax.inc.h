// softmax and log_softmax: arguments are checked, results allocated, kernels run.

template <class Arguments>
Tensor softmax_of(const Tensor& given) {
  const int64_t n = check_rows(given, "x");
  const Rows x = rows_to_read(given);
  Tensor y = new_empty_like(given);
  const Arguments arguments{x.data(), data<void>(y), n, x.stride, should_stream(y, 2), x.step};
  run(device_of(given), dtype_of(given), arguments, x.rows, 4 * n);
  return y;
}

template <class Arguments>
Tensor softmax_gradient_of(const Tensor& given_grad, const Tensor& given) {
  const int64_t n = check_rows(given, "y");
  check_like(given_grad, "grad_output", given, "y");
  const Rows grad(given_grad), y(given);
  Tensor dx = new_empty_like(given);
  const Arguments arguments{grad.data(), y.data(), data<void>(dx), n, grad.stride, y.stride, should_stream(dx, 3)};
  run(device_of(given), dtype_of(given), arguments, y.rows, 2 * n);
  return dx;
}

inline Tensor softmax(const Tensor& x) { return softmax_of<Softmax>(x); }
inline Tensor softmax_backward(const Tensor& grad, const Tensor& y) {
  return softmax_gradient_of<SoftmaxBackward>(grad, y);
}
inline Tensor log_softmax(const Tensor& x) { return softmax_of<LogSoftmax>(x); }
inline Tensor log_softmax_backward(const Tensor& grad, const Tensor& y) {
  return softmax_gradient_of<LogSoftmaxBackward>(grad, y);
}
