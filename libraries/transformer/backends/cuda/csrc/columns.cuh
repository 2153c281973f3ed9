// Sums of columns, in the same order in every call.
#pragma once

#include "rows.cuh"

namespace transformer_ops::cuda {

// A block adds up some columns: threads that are neighbours have columns that are, and each some of the rows; then
// their sums are added.
constexpr int kColumns = 32, kSlices = 16;

template <class X, class Y>
__global__ void __launch_bounds__(kColumns* kSlices)
    add_columns(const X* x, Y* sums, Y* more_sums, int64_t rows, int64_t length, bool adds) {
  using C = ComputeType<X>;
  __shared__ C of_slices[kSlices][kColumns];
  if (blockIdx.y == 1) x += rows * length, sums = more_sums;
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x;
  C total = C(0);
  if (column < length) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < rows; row += kSlices) total += static_cast<C>(x[row * length + column]);
  }
  of_slices[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= length) return;
  for (int slice = 1; slice < kSlices; ++slice) total += of_slices[slice][threadIdx.x];
  if (adds) total += static_cast<C>(sums[column]);
  sums[column] = static_cast<Y>(total);
}

// The sums of the columns of a contiguous matrix, or what is in `sums` and them; and those of the matrix that follows
// it into `more_sums`, if that is not null.
template <class X, class Y>
void sum_columns(Device device, const X* x, Y* sums, Y* more_sums, int64_t rows, int64_t length, bool adds) {
  if (length == 0) return;
  opwheel::launching([&] {
    const opwheel::cuda::CurrentStream stream(device.index);
    void* arguments[] = {&x, &sums, &more_sums, &rows, &length, &adds};
    const dim3 blocks(static_cast<uint32_t>((length + kColumns - 1) / kColumns), more_sums == nullptr ? 1 : 2);
    opwheel::cuda::launch(&add_columns<X, Y>, blocks, dim3(kColumns, kSlices), arguments, stream.get());
  });
}

}  // namespace transformer_ops::cuda
