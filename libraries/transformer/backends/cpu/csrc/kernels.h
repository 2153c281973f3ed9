// The table of kernels of one instruction set, and what the kernels that this backend alone has are given.
#pragma once

#include <cstdint>

#include "opwheel/cpu/row_table.h"
#include "transformer_ops/kernel_arguments.h"

namespace transformer_ops::cpu {

using opwheel::cpu::ByDtype;

// Rows of (batch, heads, positions, length), with the strides of the first three.
struct Heads {
  void* data;
  int64_t strides[3];
};

// What both passes depend on. Each `group` of the heads share a head of k and v. If cos is not null, q and k are turned
// as by Rope, with halves as pairs: cos and sin have a row for each position, `batch_stride` is 0 where batches share
// them. If position_ids is not null, causal queries see keys up to these, of which a batch has `position_stride`, or 0
// where batches share them, and of the keys up to there they see `window`, or all if it is 0. If mask is not null, it
// is added to scores, or, of bool, says which keys are seen; its strides are those of batches, heads and queries. If
// query_starts is not null, sequences follow each other in one batch, as many as a call has rows for each head: they
// begin there, the keys of each at its key_starts, and `keys` is the most that one of them has.
struct AttentionForm {
  int64_t heads, group, queries, keys, length;
  double scale;
  bool is_causal;
  const void *cos, *sin;
  int64_t angle_stride, batch_stride;
  const int64_t* position_ids;
  int64_t position_stride, window;
  const void* mask;
  bool mask_is_bool;
  int64_t mask_strides[3];
  const int64_t *query_starts, *key_starts;
};

// y, and log(sum(exp)) of the scores, float (double for float64), if lse is not null. A call's rows are the heads of
// all batches, or of all sequences.
struct Attention {
  Heads q, k, v, y;
  void* lse;
  AttentionForm form;
};

// The same for few queries, in three steps, of which each has a table of kernels. `scores` has, for each head of k and
// v, rows() rows of `stride` elements, the queries of the heads that share it, and room for rows up to a multiple.
constexpr int64_t kRowsOfScores = 8, kKeysOfBlock = 128, kColumnsOfBlock = 32;
struct FewQueries : Attention {
  void* scores;
  int64_t stride;
  int64_t rows() const { return form.group * form.queries; }
  int64_t key_blocks() const { return (form.keys + kKeysOfBlock - 1) / kKeysOfBlock; }
  int64_t column_blocks() const { return (form.length + kColumnsOfBlock - 1) / kColumnsOfBlock; }
};
struct FewQueryScores : FewQueries {};   // a call's rows are blocks of keys of these heads
struct FewQueryWeights : FewQueries {};  // the queries
struct FewQuerySums : FewQueries {};     // blocks of columns of these heads

// A call's rows are the heads of k and v.
struct AttentionBackward {
  Heads grad, q, k, v, dq, dk, dv;
  AttentionForm form;
};

// out = left right + bias, of a linear layer or its gradients. Element (i, k) of the left side is
// left[i * left_row + k * left_column]; if left is null, all are 1. `right` has a row for each column of the product,
// or, if right_is_by_depth, for each k. bias may be null; `out` is contiguous. A call's rows are blocks of the product,
// of `height` rows and `width` columns: its numbers do not depend on how it is divided.
struct LinearProduct {
  const void *left, *right;
  void* out;
  int64_t rows, columns, depth, left_row, left_column, right_stride;
  bool right_is_by_depth;
  const void* bias = nullptr;
  int64_t height = 0, width = 0;
};

// y[i][k] = x[k][i] of matrices, for i < rows and k < columns, where x has columns that are x_stride apart and y rows
// that are y_stride apart; steps are from one matrix to the next. A call's rows are blocks() of rows of each matrix.
constexpr int64_t kRowsOfTransposed = 32;
constexpr int64_t kLongestColumns = 1024;  // so many of them are in a cache, as kernels read them from there
struct Transposed {
  const void* x;
  void* y;
  int64_t rows, columns, x_stride, y_stride, x_step, y_step;
  int64_t blocks() const { return (rows + kRowsOfTransposed - 1) / kRowsOfTransposed; }
};

// Rows of y, which are contiguous, from elements that are x_step apart.
struct Stepped {
  const void* x;
  void* y;
  int64_t length, x_stride, x_step;
};

// The kernel that is given such arguments.
template <class Arguments>
struct KernelOf {
  ByDtype<Arguments> by_dtype;
};

struct Table : KernelOf<RmsNorm>,
               KernelOf<RmsNormBackward>,
               KernelOf<LayerNorm>,
               KernelOf<LayerNormBackward>,
               KernelOf<SumParts>,
               KernelOf<Gated>,
               KernelOf<GatedBackward>,
               KernelOf<Softmax>,
               KernelOf<SoftmaxBackward>,
               KernelOf<LogSoftmax>,
               KernelOf<LogSoftmaxBackward>,
               KernelOf<Attention>,
               KernelOf<FewQueryScores>,
               KernelOf<FewQueryWeights>,
               KernelOf<FewQuerySums>,
               KernelOf<AttentionBackward>,
               KernelOf<LinearProduct>,
               KernelOf<RopePair>,
               KernelOf<CrossEntropy>,
               KernelOf<CrossEntropyBackward>,
               KernelOf<Scaled>,
               KernelOf<Accumulate>,
               KernelOf<ColumnSums>,
               KernelOf<Quantize>,
               KernelOf<Transposed>,
               KernelOf<Stepped>,
               KernelOf<Dequantize> {};

namespace baseline {
extern const Table table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Table table;
}
namespace avx512 {
extern const Table table;
}
#elif defined(__aarch64__)
namespace bf16 {
extern const Table table;
}
#endif

}  // namespace transformer_ops::cpu
