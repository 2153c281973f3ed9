// The tables of a rotary embedding, checked: cos and sin, (positions, length) or (batch, positions, length).

struct AngleTables {
  Tensor cos, sin;  // contiguous
  int64_t positions, stride, batches;

  // Half as many columns, of which a part of each head may be meant, if `may_be_halves`; else `hint` says what to do.
  AngleTables(const Tensor& given_cos, const Tensor& given_sin, const Tensor& q, int64_t length, bool may_be_halves,
              std::string_view hint) {
    if (length % 2 != 0) fail("argument 'q' has rows of ", length, " elements, expected an even number");
    on_device(check(given_sin, "sin")).same_device(q, "q").same_shape(given_cos, "cos").same_dtype(given_cos, "cos");
    on_device(check(given_cos, "cos")).same_device(q, "q").same_dtype(q, "q");
    const opwheel::TensorInfo info(given_cos);
    const int64_t columns = info.ndim == 0 ? 0 : info.sizes[info.ndim - 1];
    if (info.ndim < 2 || info.ndim > 3 || (columns != length && !(may_be_halves && columns == length / 2))) {
      fail("argument 'cos' has shape ", opwheel::shape_text(info.ndim, info.sizes), ", expected (positions, ", length,
           ") or (batch, positions, ", length, ")", may_be_halves ? ", or half as many columns" : "", hint);
    }
    positions = info.sizes[info.ndim - 2], stride = info.sizes[info.ndim - 1];
    batches = info.ndim == 3 ? info.sizes[0] : 1;
    cos = contiguous(given_cos), sin = contiguous(given_sin);
  }
  // Refuses tables that do not have a row for each position.
  void check_positions(int64_t needed, int64_t of_batches) const {
    if (positions != needed || (batches != 1 && batches != of_batches)) {
      fail("argument 'cos' has ", positions, " positions of ", batches, " batches, but there are ", needed,
           " positions of ", of_batches, " batches");
    }
  }
};
