// rope: arguments are checked, results allocated, kernels run.

// A tensor that is turned, and what it becomes.
struct Turned {
  Tensor x, y;
  Rope arguments;
  int64_t rows;
};

// Positions in dimension 2 and heads in dimension 1, or the other way round.
inline Turned turned(const Tensor& given, Rope arguments) {
  const opwheel::TensorInfo info(given);
  const int64_t position_dim = arguments.heads_first ? 2 : 1, head_dim = arguments.heads_first ? 1 : 2;
  const bool has_rows = info.sizes[3] <= 1 || info.strides[3] == 1;
  Tensor x = has_rows ? opwheel::share(given) : std::move(Rows(given).tensor);
  const opwheel::TensorInfo seen(x);
  Tensor y = new_empty_like(given);
  arguments.x = data<void>(x);
  arguments.y = data<void>(y);
  arguments.length = info.sizes[3];
  arguments.heads = info.sizes[head_dim];
  arguments.strides[0] = seen.strides[0];
  arguments.strides[1] = seen.strides[head_dim];
  arguments.strides[2] = seen.strides[position_dim];
  const int64_t rows = info.sizes[3] == 0 ? 0 : info.numel / info.sizes[3];
  return {std::move(x), std::move(y), arguments, rows};
}

inline std::array<Tensor, 2> rope(const Tensor& q, const Tensor& k, const Tensor& given_cos, const Tensor& given_sin,
                                  const OptionalTensor& given_ids, int64_t unsqueeze_dim, bool interleaved,
                                  std::optional<int64_t> rotary_dim) {
  const Check checked = on_device(check(q, "q")).dtype(opwheel::floating).ndim(4);
  if (unsqueeze_dim != 1 && unsqueeze_dim != 2)
    fail("argument 'unsqueeze_dim' is ", unsqueeze_dim, ", expected 1 or 2");
  const int64_t position_dim = unsqueeze_dim == 1 ? 2 : 1;
  const int64_t batches = checked.info().sizes[0], positions = checked.info().sizes[position_dim];
  const int64_t length = checked.info().sizes[3];
  on_device(check(k, "k"))
      .same_device(q, "q")
      .same_dtype(q, "q")
      .ndim(4)
      .size(0, batches)
      .size(position_dim, positions)
      .size(3, length);
  if (rotary_dim && *rotary_dim != length) {
    fail("argument 'rotary_dim' is ", *rotary_dim, ", but heads have ", length,
         " elements; a part of each head is turned by passing q[..., :rotary_dim] and k[..., :rotary_dim], and "
         "concatenating the rest");
  }
  const AngleTables tables(given_cos, given_sin, q, length, rotary_dim.has_value(),
                           "; say with rotary_dim how many elements of a head the tables are for");
  std::optional<PositionIds> ids;
  if (given_ids) {
    ids.emplace(*given_ids, q, batches, positions, tables.positions, "cos");
    if (tables.batches != 1)
      fail("arguments 'cos' and 'position_ids' both have batches; pass one table for all of them");
  } else {
    tables.check_positions(positions, batches);
  }
  const Rope arguments{.x = nullptr,
                       .cos = data<void>(tables.cos),
                       .sin = data<void>(tables.sin),
                       .y = nullptr,
                       .position_ids = ids ? ids->get() : nullptr,
                       .length = length,
                       .table_rows = tables.positions,
                       .heads = 0,
                       .positions = positions,
                       .strides = {},
                       .angle_stride = tables.stride,
                       .angle_batches = tables.batches,
                       .position_batches = ids ? ids->batches : 1,
                       .heads_first = unsqueeze_dim == 1,
                       .interleaved = interleaved};
  Turned first = turned(q, arguments), second = turned(k, arguments);
  run(device_of(q), dtype_of(q), RopePair{first.arguments, second.arguments, first.rows}, first.rows + second.rows,
      2 * length);
  return {std::move(first.y), std::move(second.y)};
}
