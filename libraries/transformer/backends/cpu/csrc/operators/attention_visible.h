// Which keys queries see: what the arguments of attention say about it, checked.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "../arguments.h"

namespace transformer_ops::cpu {

inline const OptionalTensor kNone;

// The arguments of attention but queries, keys and values.
struct AttentionOptions {
  bool is_causal;
  std::optional<double> scale;
  const OptionalTensor &cos, &sin;
  const OptionalTensor &position_ids = kNone, &attn_mask = kNone;
  std::optional<int64_t> window_size = std::nullopt;
  const OptionalTensor &cu_seqlens_q = kNone, &cu_seqlens_k = kNone;
};

// Where sequences begin that follow each other, and where the last one ends.
inline std::vector<int64_t> sequence_starts(const Tensor& given, std::string_view name, int64_t positions,
                                            std::string_view of) {
  const Check checked = check(given, name).on_cpu().dtype(opwheel::DTypes{ScalarType::Int, ScalarType::Long}).ndim(1);
  const Tensor adjacent = contiguous(given);
  std::vector<int64_t> starts(static_cast<std::size_t>(checked.info().numel));
  if (dtype_of(given) == ScalarType::Int) {
    std::copy_n(data<int32_t>(adjacent), starts.size(), starts.begin());
  } else {
    std::copy_n(data<int64_t>(adjacent), starts.size(), starts.begin());
  }
  if (starts.empty() || starts.front() != 0 || starts.back() != positions ||
      !std::is_sorted(starts.begin(), starts.end())) {
    fail("argument '", name,
         "' does not say where sequences begin and the last one ends: expected numbers that do not "
         "fall from 0 to ",
         positions, ", the positions of '", of, "'");
  }
  return starts;
}

// Several sequences in one batch.
struct PackedSequences {
  std::vector<int64_t> of_queries, of_keys;

  int64_t count() const { return static_cast<int64_t>(of_queries.size()) - 1; }
  int64_t most_keys() const {
    int64_t most = 0;
    for (std::size_t i = 1; i < of_keys.size(); ++i) most = std::max(most, of_keys[i] - of_keys[i - 1]);
    return most;
  }
  // Each position is that of a key of its sequence.
  void check_positions(const int64_t* ids) const {
    for (std::size_t i = 1; i < of_queries.size(); ++i) {
      const int64_t begin = of_queries[i - 1];
      cpu::check_positions(ids + begin, of_queries[i] - begin, of_keys[i] - of_keys[i - 1],
                           "k' of its sequence in 'cu_seqlens_k");
    }
  }
};

inline std::optional<PackedSequences> packed_sequences(const AttentionOptions& options, int64_t batches,
                                                       int64_t queries, int64_t keys) {
  if (!options.cu_seqlens_q) {
    if (options.cu_seqlens_k) fail("argument 'cu_seqlens_k' is given, but 'cu_seqlens_q' is None; pass both");
    return std::nullopt;
  }
  if (batches != 1) {
    fail("argument 'q' has ", batches, " batches, expected 1 with 'cu_seqlens_q': all sequences one after the other");
  }
  if (!options.cu_seqlens_k && keys != queries) {
    fail("argument 'k' has ", keys, " positions, expected those of 'q', ", queries, ", without 'cu_seqlens_k'");
  }
  if (options.attn_mask) fail("argument 'attn_mask' is given, and so is 'cu_seqlens_q'; pass one of them");
  if (options.cos) fail("argument 'cos' is given, and so is 'cu_seqlens_q'; turn queries and keys with rope() first");
  PackedSequences found{sequence_starts(*options.cu_seqlens_q, "cu_seqlens_q", queries, "q"), {}};
  found.of_keys = options.cu_seqlens_k ? sequence_starts(*options.cu_seqlens_k, "cu_seqlens_k", keys, "k")
                                       : sequence_starts(*options.cu_seqlens_q, "cu_seqlens_q", keys, "k");
  if (found.of_keys.size() != found.of_queries.size()) {
    fail("argument 'cu_seqlens_k' has ", found.of_keys.size(), " elements, but 'cu_seqlens_q' has ",
         found.of_queries.size());
  }
  if (options.is_causal && !options.position_ids && found.of_keys != found.of_queries) {
    fail(
        "argument 'cu_seqlens_k' has other sequences than 'cu_seqlens_q': causal queries need 'position_ids', which "
        "say where they are among the keys of their sequence");
  }
  return found;
}

inline int64_t window_of(const AttentionOptions& options) {
  if (!options.window_size) return 0;
  if (!options.is_causal) {
    fail("argument 'window_size' is given, but without 'is_causal' queries see all keys; pass None");
  }
  if (*options.window_size < 1) {
    fail("argument 'window_size' is ", *options.window_size, ", expected at least 1, or None");
  }
  return *options.window_size;
}

// A mask, (batches or 1, heads or 1, queries or 1, keys) or the last of these dimensions, whose keys are adjacent.
struct AttentionMask {
  Tensor tensor;
  bool is_bool;
  int64_t strides[3];  // 0 where all share it

  AttentionMask(const Tensor& given, const Tensor& q, int64_t batches, int64_t heads, int64_t queries, int64_t keys) {
    const Check checked = check(given, "attn_mask").on_cpu().dtype(opwheel::DTypes{ScalarType::Bool, dtype_of(q)});
    is_bool = dtype_of(given) == ScalarType::Bool;
    const int64_t sizes[] = {batches, heads, queries, keys};
    const int64_t ndim = checked.info().ndim;
    bool fits = ndim >= 2 && ndim <= 4 && checked.info().sizes[ndim - 1] == keys;
    for (int64_t i = 0; fits && i < ndim - 1; ++i) {
      fits = checked.info().sizes[i] == 1 || checked.info().sizes[i] == sizes[4 - ndim + i];
    }
    if (!fits) {
      fail("argument 'attn_mask' has shape ", checked.info(), ", expected (", batches, " or 1, ", heads, " or 1, ",
           queries, " or 1, ", keys, "), or the last two or three of these");
    }
    tensor = keys <= 1 || checked.info().strides[ndim - 1] == 1 ? opwheel::share(given) : contiguous(given);
    const opwheel::TensorInfo info(tensor);
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t own = ndim - 4 + i;
      strides[i] = own < 0 || info.sizes[own] == 1 ? 0 : info.strides[own];
    }
  }
};

}  // namespace transformer_ops::cpu
