// What the kernels of all devices ask of shapes and dtypes.
#pragma once

#include "opwheel/kernels.h"

namespace waves {

using namespace opwheel;

// Also of rows without elements, whose mean is not a number.
inline int64_t rows_of(const TensorInfo& x) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.ndim; ++d) rows *= x.sizes[d];
  return rows;
}

inline Sizes leading(const Tensor& x) {
  Sizes sizes = sizes_of(x);
  sizes.pop_back();
  return sizes;
}

// Refuses what does not have one element for each row of x.
inline void check_one_per_row(const Tensor& given, std::string_view name, const TensorInfo& x) {
  const Check checked = check(given, name).ndim(x.ndim - 1);
  for (int64_t d = 0; d + 1 < x.ndim; ++d) checked.size(d, x.sizes[d]);
}

inline ScalarType wide(ScalarType dtype) {
  return dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

// Outer, along the dimension, inner.
struct Split {
  int64_t outer = 1, length = 1, inner = 1;
  Split(const TensorInfo& x, int64_t dim) {
    if (dim < -x.ndim || dim >= x.ndim) fail("argument 'dim' is ", dim, ", but x has ", x.ndim, " dimensions");
    const int64_t at = dim < 0 ? dim + x.ndim : dim;
    for (int64_t d = 0; d < x.ndim; ++d) (d < at ? outer : d == at ? length : inner) *= x.sizes[d];
  }
};

}  // namespace waves
