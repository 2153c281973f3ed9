// quantize_rowwise and dequantize_rowwise: arguments are checked, results allocated, kernels run.

inline std::array<Tensor, 2> quantize_rowwise(const Tensor& given) {
  const int64_t n = check_rows(given, "x");
  const Rows x(given);
  opwheel::Sizes leading = sizes_of(given);
  leading.pop_back();
  Tensor q = new_empty_like(given, ScalarType::Char);
  Tensor scale = new_empty(leading, ScalarType::Float, device_of(given));
  if (n == 0) OPWHEEL_SHIM(aoti_torch_zero_(scale.handle()));
  run(device_of(given), dtype_of(given), Quantize{x.data(), data<void>(q), data<void>(scale), n, x.stride}, x.rows, n);
  return {std::move(q), std::move(scale)};
}

inline Tensor dequantize_rowwise(const Tensor& given, const Tensor& given_scale, ScalarType dtype) {
  const Check checked = on_device(check(given, "q")).dtype(ScalarType::Char).at_least(1);
  const int64_t n = checked.info().sizes[checked.info().ndim - 1];
  if (!opwheel::floating.has(dtype)) {
    fail("argument 'dtype' is ", opwheel::dtype_name(opwheel::code_of(dtype)), ", expected one of ",
         opwheel::floating.text());
  }
  on_device(check(given_scale, "scale")).same_device(given, "q").dtype(ScalarType::Float).ndim(checked.info().ndim - 1);
  for (int64_t d = 0; d + 1 < checked.info().ndim; ++d) check(given_scale, "scale").size(d, checked.info().sizes[d]);
  const Tensor q = contiguous(given), scale = contiguous(given_scale);
  Tensor x = new_empty_like(given, dtype);
  const int64_t rows = n == 0 ? 0 : checked.info().numel / n;
  run(device_of(given), dtype, Dequantize{data<void>(q), data<void>(scale), data<void>(x), n}, rows, n);
  return x;
}
