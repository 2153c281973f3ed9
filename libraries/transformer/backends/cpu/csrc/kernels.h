// What each kernel is given, and the table of kernels of one instruction set. Lengths and strides are in elements,
// strides from one row to the next; rows are contiguous. `weight` and `bias` may be null. `stream`: whether results
// of the shape of x are written past the caches.
#pragma once

#include <cstdint>

#include "opwheel/cpu/row_table.h"

namespace transformer_ops::cpu {

using opwheel::cpu::ByDtype;

enum class Casting { llama, gemma };  // where the normalised row is rounded: before it is weighted, or after

struct RmsNorm {
  const void *x, *weight;
  void* y;
  int64_t length, x_stride, y_stride;
  double eps, offset;
  Casting casting;
  const void* residual;  // added to x first, if not null, and the sum kept
  void* sum;
  int64_t residual_stride, sum_stride;
  bool stream;
};

// The gradients of x and of weight. Rows are summed up in `parts` groups, whatever the number of threads, so that
// results do not depend on it; a call's rows are these groups. `partial` has a row of length float (double for float64)
// for each group.
struct RmsNormBackward {
  const void *grad, *x, *weight, *grad_sum;  // grad_sum is added to dx, if not null
  void *dx, *partial;
  int64_t length, grad_stride, x_stride, grad_sum_stride, rows, parts;
  double eps, offset;
  Casting casting;
  bool stream;
};

struct LayerNorm {
  const void *x, *weight, *bias;
  void* y;
  int64_t length, x_stride;
  double eps;
  bool stream;
};

struct LayerNormBackward {
  const void *grad, *x, *weight;
  void *dx, *partial, *partial_bias;
  int64_t length, grad_stride, x_stride, rows, parts;
  double eps;
  bool stream;
};

// Adds the groups' sums up: a call's rows are columns.
struct SumParts {
  const void* partial;
  void* sums;
  int64_t length, parts;
};

enum class Activation { silu, gelu_tanh, gelu };

struct Gated {  // activation(a) * b
  const void *a, *b;
  void* y;
  int64_t length, a_stride, b_stride, y_stride;
  Activation activation;
  bool stream;
};

struct GatedBackward {
  const void *grad, *a, *b;
  void *da, *db;
  int64_t length, grad_stride, a_stride, b_stride;
  Activation activation;
  bool stream;
};

struct Softmax {
  const void* x;
  void* y;
  int64_t length, x_stride;
  bool stream;
};

struct SoftmaxBackward {
  const void *grad, *y;
  void* dx;
  int64_t length, grad_stride, y_stride;
  bool stream;
};

// Rows of (batch, heads, positions, length), with the strides of the first three.
struct Heads {
  void* data;
  int64_t strides[3];
};

// What both passes go by. Each `group` of the heads share a head of k and v. If cos is not null, q and k are turned as
// by Rope, with halves as pairs: cos and sin have a row for each position, `batch_stride` is 0 where batches share
// them.
struct AttentionForm {
  int64_t heads, group, queries, keys, length;
  double scale;
  bool is_causal;
  const void *cos, *sin;
  int64_t angle_stride, batch_stride;
};

// y, and log(sum(exp)) of the scores, float (double for float64), if lse is not null. A call's rows are the heads of
// all batches.
struct Attention {
  Heads q, k, v, y;
  void* lse;
  AttentionForm form;
};

// A call's rows are the heads of k and v.
struct AttentionBackward {
  Heads grad, q, k, v, y, dq, dk, dv;
  const void* lse;
  AttentionForm form;
};

// Rows of q or k: all positions of all heads of all batches, as they are in y, which is contiguous. Strides are those
// of x along batches, heads and positions; cos and sin have a row of length / 2 for each position.
struct Rope {
  const void *x, *cos, *sin;
  void* y;
  const int64_t* position_ids;  // null: positions are counted
  int64_t length, heads, positions, strides[3], angle_stride, angle_batches, position_batches;
  bool heads_first, interleaved, backwards;
};

// loss, z_loss and lse are float (double for float64), one for each row; softcap is 0 for none.
struct CrossEntropy {
  const void *x, *weight;
  const int64_t* target;
  void *loss, *z_loss, *lse, *lse_rest;
  int64_t length, x_stride, ignore_index;
  double lse_square_scale, label_smoothing, softcap;
};

// grad is float (double for float64): one for each row, or one for all. grad_z: one for each row, or null.
struct CrossEntropyBackward {
  const void *grad, *grad_z, *x, *weight, *lse, *lse_rest;
  const int64_t* target;
  void* dx;
  int64_t length, x_stride, ignore_index;
  double lse_square_scale, label_smoothing, softcap;
  bool grad_per_row;
};

// x * factor, which is float (double for float64), as x is if it is wide.
struct Scaled {
  const void *x, *factor;
  void* y;
  int64_t length, x_stride;
  bool x_is_wide;
};

// sum = x, or sum += x; it is float (double for float64).
struct Accumulate {
  const void* x;
  void* sum;
  bool adds;
};

struct Quantize {
  const void* x;
  void *q, *scale;  // int8 and float
  int64_t length, x_stride;
};

struct Dequantize {
  const void *q, *scale;  // int8 and float
  void* x;
  int64_t length;
};

struct Table {
  ByDtype<RmsNorm> rms_norm;
  ByDtype<RmsNormBackward> rms_norm_backward;
  ByDtype<LayerNorm> layer_norm;
  ByDtype<LayerNormBackward> layer_norm_backward;
  ByDtype<SumParts> sum_parts;
  ByDtype<Gated> gated;
  ByDtype<GatedBackward> gated_backward;
  ByDtype<Softmax> softmax;
  ByDtype<SoftmaxBackward> softmax_backward;
  ByDtype<Attention> attention;
  ByDtype<AttentionBackward> attention_backward;
  ByDtype<Rope> rope;
  ByDtype<CrossEntropy> cross_entropy;
  ByDtype<CrossEntropyBackward> cross_entropy_backward;
  ByDtype<Scaled> scaled;
  ByDtype<Accumulate> accumulate;
  ByDtype<Quantize> quantize;
  ByDtype<Dequantize> dequantize;
};

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
#else
namespace avx2 = baseline;
namespace avx512 = baseline;
#endif

}  // namespace transformer_ops::cpu
