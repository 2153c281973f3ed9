// What each kernel is given, whatever device it runs on. Lengths and strides are in elements, strides from one row to
// the next; rows are contiguous, but for those with a step, which is from one element to the next: it is 1 on devices
// whose rows_to_read() copies others. `weight` and `bias` may be null. `stream`: whether results of the shape of x are
// written with non-temporal stores, where the device has them.
#pragma once

#include <cstdint>

namespace transformer_ops {

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
  int64_t x_step = 1, residual_step = 1;
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
  int64_t x_step = 1;
};

struct LayerNormBackward {
  const void *grad, *x, *weight;
  void *dx, *partial, *partial_bias;
  int64_t length, grad_stride, x_stride, rows, parts;
  double eps;
  bool stream;
};

// Adds the groups' sums up. A call's rows are columns: of `sums`, and then, if it is not null, of `more_sums`, whose
// groups follow those of the first.
struct SumParts {
  const void* partial;
  void *sums, *more_sums;
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
  int64_t x_step = 1;
};

struct SoftmaxBackward {
  const void *grad, *y;
  void* dx;
  int64_t length, grad_stride, y_stride;
  bool stream;
};

struct LogSoftmax : Softmax {};
struct LogSoftmaxBackward : SoftmaxBackward {};

// Rows of q or k: all positions of all heads of all batches, as they are in y, which is contiguous. Strides are those
// of x along batches, heads and positions; cos and sin have a row of length / 2 for each position.
struct Rope {
  const void *x, *cos, *sin;
  void* y;
  const int64_t* position_ids;  // null: positions are counted
  int64_t length, table_rows, heads, positions, strides[3], angle_stride, angle_batches, position_batches;
  bool heads_first, interleaved;
};

// Both at once: the rows of q, of which there are q_rows, and then those of k.
struct RopePair {
  Rope q, k;
  int64_t q_rows;
};

// loss, lse and lse_rest are float (double for float64), one for each row; so are weight, one for each class,
// and token_weight, one for each row: both may be null. softcap is 0 for none.
struct CrossEntropy {
  const void *x, *weight, *token_weight;
  const int64_t* target;
  void *loss, *lse, *lse_rest;
  int64_t length, x_stride, ignore_index;
  double lse_square_scale, label_smoothing, softcap;
  int64_t x_step = 1;
};

// grad is float (double for float64): one for each row, or one for all; null for 1. divisors: of the gradient of the
// cross entropy, and of that of the z-loss; null for 1.
struct CrossEntropyBackward {
  const void *grad, *divisors, *x, *weight, *token_weight, *lse, *lse_rest;
  const int64_t* target;
  void* dx;
  int64_t length, x_stride, ignore_index;
  double lse_square_scale, label_smoothing, softcap;
  bool grad_per_row;
};

// The loss of all rows, from their cross entropies, without z-losses, and lse. A mean divides the cross entropies by
// the sum of the weights of the targets that count, and the z-losses by their number, each times its token's weight:
// these are the divisors, which are written; null for a sum.
struct LossTotal {
  const void *row_loss, *lse, *weight, *token_weight;
  const int64_t* target;
  void *loss, *divisors;
  int64_t rows, ignore_index;
  double lse_square_scale;
};

// What gradients of rows are divided by before they are computed, of the cross entropy and of the z-loss, and what the
// results are to be multiplied by, which is 0 where no row counts. Those that are rounded to 16 bits are so divided
// that they are neither too large nor too small. grad: of each row, or null for 1.
struct LossScale {
  const void *grad, *weight, *token_weight;
  const int64_t* target;
  void *divisors, *factor;
  int64_t rows, classes, ignore_index;
  bool is_mean, is_narrow;
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
  int64_t length;
  bool adds;
};

// sums = the sum of the rows of x, or sums += it; sums are float (double for float64). A call's rows are the columns.
struct ColumnSums {
  const void* x;
  void* sums;
  int64_t rows, length;
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

}  // namespace transformer_ops
