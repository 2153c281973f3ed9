// rope: arguments are checked, results allocated, kernels run.
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "angles.h"

namespace transformer_ops::cpu {

// Positions in dimension 2 and heads in dimension 1, or the other way round.
inline Tensor rotate(const Tensor& given, const Tensor& cos, const Tensor& sin, Rope arguments) {
  const opwheel::TensorInfo info(given);
  const int64_t position_dim = arguments.heads_first ? 2 : 1, head_dim = arguments.heads_first ? 1 : 2;
  const bool has_rows = info.sizes[3] <= 1 || info.strides[3] == 1;
  const Tensor x = has_rows ? opwheel::share(given) : contiguous(given);
  const opwheel::TensorInfo seen(x);
  Tensor y = new_empty(sizes_of(given), dtype_of(given), device_of(given));
  arguments.x = data<void>(x);
  arguments.cos = data<void>(cos);
  arguments.sin = data<void>(sin);
  arguments.y = data<void>(y);
  arguments.length = info.sizes[3];
  arguments.heads = info.sizes[head_dim];
  arguments.strides[0] = seen.strides[0];
  arguments.strides[1] = seen.strides[head_dim];
  arguments.strides[2] = seen.strides[position_dim];
  const int64_t rows = info.sizes[3] == 0 ? 0 : info.numel / info.sizes[3];
  run(kernels().rope, dtype_of(given), arguments, rows, 2 * info.sizes[3]);
  return y;
}

inline std::array<Tensor, 2> rope(const Tensor& q, const Tensor& k, const Tensor& given_cos, const Tensor& given_sin,
                                  const OptionalTensor& given_ids, int64_t unsqueeze_dim, bool interleaved,
                                  std::optional<int64_t> rotary_dim) {
  const Check checked = check(q, "q").on_cpu().dtype(opwheel::floating).ndim(4);
  if (unsqueeze_dim != 1 && unsqueeze_dim != 2)
    fail("argument 'unsqueeze_dim' is ", unsqueeze_dim, ", expected 1 or 2");
  const int64_t position_dim = unsqueeze_dim == 1 ? 2 : 1;
  const int64_t batches = checked.info().sizes[0], positions = checked.info().sizes[position_dim];
  const int64_t length = checked.info().sizes[3];
  check(k, "k").on_cpu().same_dtype(q, "q").ndim(4).size(0, batches).size(position_dim, positions).size(3, length);
  if (rotary_dim && *rotary_dim != length) {
    fail("argument 'rotary_dim' is ", *rotary_dim, ", but heads have ", length,
         " elements; a part of each head is turned by passing q[..., :rotary_dim] and k[..., :rotary_dim], and "
         "concatenating the rest");
  }
  const AngleTables tables(given_cos, given_sin, q, length, rotary_dim.has_value(),
                           "; say with rotary_dim how many elements of a head the tables are for");
  Tensor ids;
  int64_t position_batches = 1;
  if (given_ids) {
    const Check of_ids = check(*given_ids, "position_ids").on_cpu().dtype(ScalarType::Long).size(-1, positions);
    if (of_ids.info().ndim > 2) of_ids.ndim(2);
    position_batches = of_ids.info().ndim == 2 ? of_ids.info().sizes[0] : 1;
    if (position_batches != 1) of_ids.size(0, batches);
    if (tables.batches != 1)
      fail("arguments 'cos' and 'position_ids' both have batches; pass one table for all of them");
    ids = contiguous(*given_ids);
    const int64_t* values = data<int64_t>(ids);
    for (int64_t i = 0; i < of_ids.info().numel; ++i) {
      if (values[i] < 0 || values[i] >= tables.positions) {
        fail("argument 'position_ids' has ", values[i], ", but 'cos' has ", tables.positions, " positions");
      }
    }
  } else {
    tables.check_positions(positions, batches);
  }
  const Rope arguments{.x = nullptr,
                       .cos = nullptr,
                       .sin = nullptr,
                       .y = nullptr,
                       .position_ids = ids.handle() == nullptr ? nullptr : data<int64_t>(ids),
                       .length = length,
                       .heads = 0,
                       .positions = positions,
                       .strides = {},
                       .angle_stride = tables.stride,
                       .angle_batches = tables.batches,
                       .position_batches = position_batches,
                       .heads_first = unsqueeze_dim == 1,
                       .interleaved = interleaved,
                       .backwards = false};
  Tensor first = rotate(q, tables.cos, tables.sin, arguments);
  return {std::move(first), rotate(k, tables.cos, tables.sin, arguments)};
}

}  // namespace transformer_ops::cpu
