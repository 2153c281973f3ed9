// When results are written with non-temporal stores.
//
// It pays where the operands do not fit into the last-level cache: results written through it are read into it first,
// and push out what is needed sooner. It does not pay in place, where the old contents are needed; for short
// rows that are not whole cache lines, because nothing else can be streamed; nor into small pages that the system has
// yet to give: it fills them with zeros, and so has them in the cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "opwheel/detail/cpu/capability.h"
#include "opwheel/detail/huge_pages.h"

namespace opwheel::cpu {

// Whether operands of so many bytes together fill the last-level cache. Measured on a Zen 4 with 32 MiB: from there on
// rows and element-wise loops are faster with streamed results; at 24 MiB they take between 0.8 and 1.15 times as long,
// depending on how much of the cache others use.
// Of a larger cache few cores have much use. On two of a Xeon with 480 MiB, streamed results of float32 rows take, for
// operands of 64 MiB, 0.88 of the time, together with a torch.relu() of the result as long as others; of 128 MiB 0.7
// and 0.95, but of 32 MiB 1.06 and 1.2.
inline bool fills_caches(int64_t bytes) {
  constexpr int64_t kMost = 64 << 20;
  return bytes >= std::min(last_level_cache(), kMost);
}

// Whether contiguous rows are whole cache lines.
inline bool are_whole_lines(const void* rows, int64_t row_bytes) {
  constexpr int64_t kLine = 64;
  return row_bytes % kLine == 0 && reinterpret_cast<uintptr_t>(rows) % kLine == 0;
}

// Whether a result of this many bytes is in memory that is there, or will come in huge pages.
inline bool is_streamable(const char* result, int64_t bytes) {
  return detail::huge_pages::are_given(bytes) || detail::huge_pages::is_resident(result + bytes / 2);
}

// Whether to stream a result of contiguous rows, for a kernel whose operands, `operand_count` of them with its results,
// all have such rows. Not to be asked of a result that is an operand's memory.
inline bool should_stream(const void* result, int64_t rows, int64_t row_bytes, int operand_count) {
  const int64_t bytes = rows * row_bytes;
  return fills_caches(bytes * operand_count) && are_whole_lines(result, row_bytes) &&
         is_streamable(static_cast<const char*>(result), bytes);
}

}  // namespace opwheel::cpu
