// Questions about sizes and strides, answered as PyTorch answers them (c10/core/Contiguity.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "opwheel/detail/tensor.h"

namespace opwheel {

constexpr int kMaxDims = 64;  // PyTorch's own limit for element-wise operators

inline bool is_contiguous(const TensorInfo& tensor) {
  if (tensor.numel == 0) return true;
  int64_t expected = 1;
  for (int64_t d = tensor.ndim - 1; d >= 0; --d) {
    if (tensor.sizes[d] == 1) continue;
    if (tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

inline constexpr std::initializer_list<int> kChannelsLastOrder = {1, 3, 2, 0};  // innermost first, of N, C, H, W

inline bool is_channels_last(const TensorInfo& tensor) {
  if (tensor.ndim != 4) return false;
  int64_t expected = 1;
  for (int d : kChannelsLastOrder) {
    if (tensor.sizes[d] == 1) continue;
    if (tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

// Every element has a place of its own and there are no gaps, in whatever order of dimensions.
inline bool is_non_overlapping_and_dense(const TensorInfo& tensor) {
  if (tensor.numel == 0) return true;
  int by_stride[kMaxDims];
  std::iota(by_stride, by_stride + tensor.ndim, 0);
  std::sort(by_stride, by_stride + tensor.ndim, [&](int a, int b) {
    if (tensor.sizes[a] == 1 || tensor.sizes[b] == 1) return tensor.sizes[a] != 1;
    return tensor.strides[a] < tensor.strides[b];
  });
  int64_t expected = 1;
  for (int64_t i = 0; i < tensor.ndim && tensor.sizes[by_stride[i]] != 1; ++i) {
    if (tensor.strides[by_stride[i]] != expected) return false;
    expected *= tensor.sizes[by_stride[i]];
  }
  return true;
}

// The order in which TensorIterator loops over dimensions, innermost first. compare(a, b) is positive where dimension a
// belongs outside of b, negative where it belongs inside, and 0 where nothing tells them apart: that is not transitive,
// hence an insertion sort.
template <class Compare>
void order_dims(int ndim, int* order, const Compare& compare) {
  for (int i = 0; i < ndim; ++i) order[i] = ndim - 1 - i;
  for (int i = 1; i < ndim; ++i) {
    int moving = i;
    for (int other = i - 1; other >= 0; --other) {
      const int comparison = compare(order[other], order[moving]);
      if (comparison < 0) break;
      if (comparison == 0) continue;
      std::swap(order[other], order[moving]);
      moving = other;
    }
  }
}

// How one operand orders the dimensions a and b, with sizes that are those of the loops.
inline int compare_strides(const int64_t* strides, const int64_t* sizes, int a, int b) {
  if (strides[a] == 0 || strides[b] == 0) return 0;
  if (strides[a] != strides[b]) return strides[a] < strides[b] ? -1 : 1;
  return sizes[a] > sizes[b] ? 1 : 0;
}

// What PyTorch gives a copy of the tensor: its own strides, or without gaps and overlaps in the same order.
inline void strides_of_copy(const TensorInfo& tensor, int64_t* strides) {
  if (is_non_overlapping_and_dense(tensor)) {
    std::copy_n(tensor.strides, tensor.ndim, strides);
    return;
  }
  int order[kMaxDims];
  const auto compare = [&](int a, int b) { return compare_strides(tensor.strides, tensor.sizes, a, b); };
  order_dims(static_cast<int>(tensor.ndim), order, compare);
  int64_t next = 1;
  for (int64_t i = 0; i < tensor.ndim; ++i) {
    strides[order[i]] = next;
    next *= tensor.sizes[order[i]];
  }
}

inline void contiguous_strides(int ndim, const int64_t* sizes, int64_t* strides) {
  int64_t next = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    strides[d] = next;
    next *= std::max<int64_t>(sizes[d], 1);
  }
}

inline bool has_shape(const TensorInfo& tensor, int64_t ndim, const int64_t* sizes) {
  return tensor.ndim == ndim && std::equal(sizes, sizes + ndim, tensor.sizes);
}

inline void channels_last_strides(const int64_t* sizes, int64_t* strides) {
  int64_t next = 1;
  for (int d : kChannelsLastOrder) {
    strides[d] = next;
    next *= sizes[d];
  }
}

}  // namespace opwheel
