// What operators do on the host, with this backend's kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels.h"
#include "opwheel/cpu/row_kernels.h"
#include "opwheel/kernels.h"
#include "opwheel/views.h"

namespace transformer_ops::cpu {

using opwheel::check;
using opwheel::Check;
using opwheel::copy_to;
using opwheel::data;
using opwheel::device_of;
using opwheel::dtype_of;
using opwheel::fail;
using opwheel::new_empty;
using opwheel::new_empty_like;
using opwheel::ScalarType;
using opwheel::sizes_of;
using opwheel::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline const Table& kernels() {
#if defined(__x86_64__)
  static const Table& table = opwheel::cpu::best("transformer_ops", baseline::table, avx2::table, avx512::table);
#elif defined(__aarch64__)
  static const Table& table = opwheel::cpu::best("transformer_ops", baseline::table, bf16::table);
#else
  static const Table& table = baseline::table;
#endif
  return table;
}

inline const Check& on_device(const Check& checked) { return checked.on_cpu(); }

template <class Arguments>
void run(opwheel::Device, ScalarType dtype, const Arguments& arguments, int64_t rows, int64_t cost) {
  opwheel::cpu::run(static_cast<const KernelOf<Arguments>&>(kernels()).by_dtype, dtype, arguments, rows, cost);
}

#include "rows.inc.h"
#include "transformer_ops/host/arguments.inc.h"

// Writes one value into all of a contiguous tensor.
inline void fill(const Tensor& tensor, double value) {
  opwheel::dispatch(dtype_of(tensor), [&]<class T> {
    std::fill_n(data<T>(tensor), opwheel::TensorInfo(tensor).numel, static_cast<T>(value));
  });
}

// Whether to write a result with non-temporal stores, if a kernel has so many tensors of its shape.
inline bool should_stream(const Rows& y, int operand_count) {
  const int64_t size = opwheel::element_size(opwheel::code_of(dtype_of(y.tensor)));
  return y.stride == y.length && opwheel::cpu::should_stream(y.data(), y.rows, y.length * size, operand_count);
}

// The same of a new result, which has no gaps.
inline bool should_stream(const Tensor& y, int operand_count) {
  const opwheel::TensorInfo info(y);
  const int64_t length = info.ndim == 0 ? 1 : info.sizes[info.ndim - 1];
  const int64_t rows = length == 0 ? 0 : info.numel / length, size = opwheel::element_size(info.dtype_code);
  return opwheel::cpu::should_stream(data<void>(y), rows, length * size, operand_count);
}

// How many groups rows are summed up in: enough for many threads, and never dependent on their number.
inline int64_t part_count(const Rows& x) { return std::min<int64_t>(x.rows, 64); }

inline void check_targets(const int64_t* targets, int64_t count, int64_t classes, int64_t ignore_index) {
  for (int64_t i = 0; i < count; ++i) {
    if (targets[i] != ignore_index && (targets[i] < 0 || targets[i] >= classes)) {
      fail("argument 'target' has ", targets[i], ", which is no class: there are ", classes);
    }
  }
}
inline void check_positions(const int64_t* ids, int64_t count, int64_t limit, std::string_view of) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= limit) {
      fail("argument 'position_ids' has ", ids[i], ", but '", of, "' has ", limit, " positions");
    }
  }
}

#include "loss_sums.inc.h"

// What the operators do on any device.
#include "transformer_ops/host/activations.inc.h"
#include "transformer_ops/host/angles.inc.h"
#include "transformer_ops/host/cache.inc.h"
#include "transformer_ops/host/cross_entropy.inc.h"
#include "transformer_ops/host/norms.inc.h"
#include "transformer_ops/host/positions.inc.h"
#include "transformer_ops/host/quantize.inc.h"
#include "transformer_ops/host/rope.inc.h"
#include "transformer_ops/host/softmax.inc.h"

}  // namespace transformer_ops::cpu
