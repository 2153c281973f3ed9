// What operators do on the host, with this backend's kernels.
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels.h"
#include "opwheel/kernels.h"
#include "opwheel/views.h"

namespace transformer_ops::cuda {

using opwheel::check;
using opwheel::Check;
using opwheel::copy_to;
using opwheel::data;
using opwheel::device_of;
using opwheel::dtype_of;
using opwheel::fail;
using opwheel::new_empty;
using opwheel::new_empty_like;
using opwheel::Rows;
using opwheel::sizes_of;
using opwheel::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline const Check& on_device(const Check& checked) { return checked.on_cuda(); }

#include "transformer_ops/host/arguments.inc.h"

inline Rows rows_to_read(const Tensor& given) { return Rows(given); }

// Stores go through the cache on every device.
inline bool should_stream(const Rows&, int) { return false; }
inline bool should_stream(const Tensor&, int) { return false; }

inline int64_t part_count(const Rows& x) {
  return part_count(device_of(x.tensor), dtype_of(x.tensor), x.rows, x.length);
}

// The device finds out: the kernels assert it, as PyTorch's do.
inline void check_targets(const int64_t*, int64_t, int64_t, int64_t) {}
inline void check_positions(const int64_t*, int64_t, int64_t, std::string_view) {}

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

}  // namespace transformer_ops::cuda
