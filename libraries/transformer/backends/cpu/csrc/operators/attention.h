// attention: arguments are checked, results allocated, kernels run.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "../arguments.h"
#include "attention_visible.h"

namespace transformer_ops::cpu {

// What the arguments besides queries, keys and values hold, where they are given.
struct AttentionTensors {
  std::optional<AngleTables> tables;
  std::optional<PositionIds> ids;
  std::optional<AttentionMask> mask;
  std::optional<PackedSequences> sequences;
};

// The sizes of a call, checked.
struct AttentionSizes {
  int64_t batches, heads, shared, queries, keys, length;  // `shared`: heads of k and v

  AttentionSizes(const Tensor& q, const Tensor& k, const Tensor& v) {
    const Check of_q = check(q, "q").on_cpu().dtype(opwheel::floating).ndim(4);
    batches = of_q.info().sizes[0], queries = of_q.info().sizes[1];
    heads = of_q.info().sizes[2], length = of_q.info().sizes[3];
    if (length == 0) fail("argument 'q' has rows of 0 elements, expected at least 1");
    const Check of_k = check(k, "k").on_cpu().same_dtype(q, "q").ndim(4).size(0, batches).size(3, length);
    keys = of_k.info().sizes[1], shared = of_k.info().sizes[2];
    check_like(v, "v", k, "k");
    if (shared == 0 ? heads != 0 : heads % shared != 0) {
      fail("argument 'q' has ", heads, " heads, expected a multiple of those of 'k', ", shared);
    }
  }
  int64_t group() const { return shared == 0 ? 1 : heads / shared; }
  AttentionForm form(const AttentionOptions& options, const AttentionTensors& tensors) const {
    const auto& [tables, ids, mask, sequences] = tensors;
    AttentionForm form{.heads = heads,
                       .group = group(),
                       .queries = queries,
                       .keys = keys,
                       .length = length,
                       .scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(length))),
                       .is_causal = options.is_causal,
                       .cos = nullptr,
                       .sin = nullptr,
                       .angle_stride = 0,
                       .batch_stride = 0,
                       .position_ids = ids ? ids->get() : nullptr,
                       .position_stride = ids && ids->batches != 1 ? queries : 0,
                       .window = window_of(options),
                       .mask = mask ? data<void>(mask->tensor) : nullptr,
                       .mask_is_bool = mask && mask->is_bool,
                       .mask_strides = {},
                       .query_starts = sequences ? sequences->of_queries.data() : nullptr,
                       .key_starts = sequences ? sequences->of_keys.data() : nullptr};
    if (mask) std::copy_n(mask->strides, 3, form.mask_strides);
    if (sequences) form.keys = sequences->most_keys();
    if (tables) {
      form.cos = data<void>(tables->cos), form.sin = data<void>(tables->sin);
      form.angle_stride = tables->stride;
      form.batch_stride = tables->batches == 1 ? 0 : tables->positions * tables->stride;
    }
    return form;
  }
  // The tables by which queries and keys are turned, of which there must be as many.
  std::optional<AngleTables> tables(const AttentionOptions& options, const Tensor& q) const {
    const auto &cos = options.cos, &sin = options.sin;
    if (cos.has_value() != sin.has_value()) {
      fail("argument '", cos ? "sin" : "cos", "' is None, but '", cos ? "cos" : "sin", "' is not; pass both or none");
    }
    if (!cos) return std::nullopt;
    if (keys != queries) {
      fail("argument 'k' has ", keys, " positions, expected those of 'q' with 'cos', ", queries);
    }
    AngleTables tables(*cos, *sin, q, length, false,
                       "; of a table with half as many columns pass torch.cat((cos, cos), -1)");
    tables.check_positions(queries, batches);
    return tables;
  }
  // The positions up to which causal queries see keys, unless they are counted from 0.
  std::optional<PositionIds> positions(const AttentionOptions& options, const Tensor& q) const {
    if (!options.position_ids) return std::nullopt;
    if (!options.is_causal) {
      fail("argument 'position_ids' is given, but without 'is_causal' queries see all keys; pass None");
    }
    if (options.cos) fail("argument 'position_ids' is given, and so is 'cos'; turn queries and keys with rope() first");
    return PositionIds(*options.position_ids, q, batches, queries, keys, "k");
  }
  AttentionTensors tensors(const AttentionOptions& options, const Tensor& q) const {
    AttentionTensors found{.tables = tables(options, q), .ids = positions(options, q), .mask = {}, .sequences = {}};
    if (options.attn_mask) found.mask.emplace(*options.attn_mask, q, batches, heads, queries, keys);
    found.sequences = packed_sequences(options, batches, queries, keys);
    if (found.sequences && found.ids) found.sequences->check_positions(found.ids->get());
    return found;
  }
  int64_t keys_seen(const PositionIds& ids) const {
    int64_t seen = 0;
    for (int64_t i = 0; i < ids.batches * queries; ++i) seen = std::max(seen, ids.get()[i] + 1);
    return seen;
  }
  // Whether keys and values are to be read once for all queries that share them. Causal ones without given positions
  // see as few keys.
  bool are_few_queries(const AttentionForm& form) const {
    constexpr int64_t kMost = 16, kMostScores = 1 << 26;
    const int64_t rows = batches * heads * queries;
    const bool is_cut = form.is_causal && form.position_ids == nullptr;
    return rows > 0 && queries <= kMost && !is_cut && form.cos == nullptr && form.query_starts == nullptr &&
           rows * form.keys <= kMostScores;
  }
  // What a head costs, in elements that could be read and written meanwhile.
  int64_t cost(int64_t passes) const { return 1 + passes * queries * (keys / 16 + 1) * length; }
};

inline Tensor with_rows(const Tensor& given) {
  const opwheel::TensorInfo info(given);
  return info.sizes[3] <= 1 || info.strides[3] == 1 ? opwheel::share(given) : contiguous(given);
}
inline Heads heads_of(const Tensor& tensor) {
  const opwheel::TensorInfo info(tensor);
  return {data<void>(tensor), {info.strides[0], info.strides[2], info.strides[1]}};
}

inline void attend_few_queries(const Attention& arguments, const AttentionSizes& sizes, ScalarType dtype,
                               opwheel::Device device) {
  const auto padded = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  const int64_t heads = sizes.batches * sizes.shared, rows = sizes.group() * sizes.queries;
  const int64_t keys = arguments.form.keys;
  const int64_t stride = padded(keys, kKeysOfBlock) + 16;  // not a power of two: these share lines of the cache
  const Tensor scores = new_empty({heads, padded(rows, kRowsOfScores), stride}, wide(dtype), device);
  const FewQueries call{arguments, data<void>(scores), stride};
  const int64_t products = rows / 16 + 1;  // cost as much as reading a number
  run(device, dtype, FewQueryScores{call}, heads * call.key_blocks(), kKeysOfBlock * sizes.length * products);
  run(device, dtype, FewQueryWeights{call}, heads * rows, keys);
  run(device, dtype, FewQuerySums{call}, heads * call.column_blocks(), keys * kColumnsOfBlock * products);
}

// y, and into `lse` what the backward pass needs, if it is a tensor.
inline Tensor attention_into(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v,
                             const AttentionOptions& options, const AttentionSizes& sizes, const Tensor& lse) {
  const AttentionTensors tensors = sizes.tensors(options, given_q);
  Tensor y = new_empty_like(given_q);
  const Tensor q = with_rows(given_q), k = with_rows(given_k), v = with_rows(given_v);
  Attention arguments{.q = heads_of(q),
                      .k = heads_of(k),
                      .v = heads_of(v),
                      .y = heads_of(y),
                      .lse = lse.handle() == nullptr ? nullptr : data<void>(lse),
                      .form = sizes.form(options, tensors)};
  if (sizes.keys == 0) {
    fill(y, 0);
    return y;
  }
  if (tensors.ids && !tensors.sequences) arguments.form.keys = sizes.keys_seen(*tensors.ids);  // of a cache with room
  if (sizes.are_few_queries(arguments.form)) {
    attend_few_queries(arguments, sizes, dtype_of(q), device_of(q));
  } else {
    const int64_t count = tensors.sequences ? tensors.sequences->count() : sizes.batches;
    run(device_of(q), dtype_of(q), arguments, count * sizes.heads, sizes.cost(2));
  }
  return y;
}

inline Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal, std::optional<double> scale,
                        const OptionalTensor& cos, const OptionalTensor& sin, const OptionalTensor& position_ids,
                        const OptionalTensor& attn_mask, std::optional<int64_t> window_size,
                        const OptionalTensor& cu_seqlens_q, const OptionalTensor& cu_seqlens_k) {
  const AttentionOptions options{is_causal, scale,       cos,          sin,         position_ids,
                                 attn_mask, window_size, cu_seqlens_q, cu_seqlens_k};
  return attention_into(q, k, v, options, AttentionSizes(q, k, v), Tensor());
}

inline std::array<Tensor, 2> training_results(const Tensor& q, const Tensor& k, const Tensor& v,
                                              const AttentionOptions& options) {
  const AttentionSizes sizes(q, k, v);
  Tensor lse = new_empty({sizes.batches, sizes.heads, sizes.queries}, wide(dtype_of(q)), device_of(q));
  if (sizes.keys == 0) fill(lse, -std::numeric_limits<double>::infinity());
  Tensor y = attention_into(q, k, v, options, sizes, lse);
  return {std::move(y), std::move(lse)};
}

inline std::array<Tensor, 2> attention_training(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal,
                                                std::optional<double> scale, const OptionalTensor& cos,
                                                const OptionalTensor& sin, const OptionalTensor& position_ids,
                                                const OptionalTensor& attn_mask, std::optional<int64_t> window_size,
                                                const OptionalTensor& cu_seqlens_q,
                                                const OptionalTensor& cu_seqlens_k) {
  return training_results(
      q, k, v, {is_causal, scale, cos, sin, position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k});
}

// Queries, keys and values, or their gradients.
struct Qkv {
  const Tensor &q, &k, &v;
};

// Into `gradients`, in whose rows elements follow each other. What the forward pass has kept is checked, and not read.
inline void attention_backward_into(const Qkv& gradients, const AttentionSizes& sizes, const Tensor& given_grad,
                                    const Qkv& given, const Tensor& given_y, const Tensor& given_lse,
                                    const AttentionOptions& options) {
  const AttentionTensors tensors = sizes.tensors(options, given.q);
  check_like(given_grad, "grad_output", given.q, "q");
  check_like(given_y, "y", given.q, "q");
  check(given_lse, "lse").on_cpu().dtype(wide(dtype_of(given.q))).shape({sizes.batches, sizes.heads, sizes.queries});
  const Tensor q = with_rows(given.q), k = with_rows(given.k), v = with_rows(given.v);
  const Tensor grad = with_rows(given_grad);
  if (sizes.keys == 0 || sizes.heads == 0) {
    for (const Tensor* gradient : {&gradients.q, &gradients.k, &gradients.v}) fill(*gradient, 0);
    return;
  }
  const AttentionBackward arguments{.grad = heads_of(grad),
                                    .q = heads_of(q),
                                    .k = heads_of(k),
                                    .v = heads_of(v),
                                    .dq = heads_of(gradients.q),
                                    .dk = heads_of(gradients.k),
                                    .dv = heads_of(gradients.v),
                                    .form = sizes.form(options, tensors)};
  const int64_t count = tensors.sequences ? tensors.sequences->count() : sizes.batches;
  run(device_of(q), dtype_of(q), arguments, count * sizes.shared, sizes.cost(5) * sizes.group());
}

inline std::array<Tensor, 3> attention_backward(const Tensor& grad_output, const Tensor& q, const Tensor& k,
                                                const Tensor& v, const Tensor& y, const Tensor& lse, bool is_causal,
                                                std::optional<double> scale, const OptionalTensor& cos,
                                                const OptionalTensor& sin, const OptionalTensor& position_ids,
                                                const OptionalTensor& attn_mask, std::optional<int64_t> window_size,
                                                const OptionalTensor& cu_seqlens_q,
                                                const OptionalTensor& cu_seqlens_k) {
  const AttentionSizes sizes(q, k, v);
  Tensor dq = new_empty_like(q), dk = new_empty_like(k), dv = new_empty_like(v);
  attention_backward_into(
      {dq, dk, dv}, sizes, grad_output, {q, k, v}, y, lse,
      {is_causal, scale, cos, sin, position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k});
  return {std::move(dq), std::move(dk), std::move(dv)};
}

}  // namespace transformer_ops::cpu
