// Runs kernels over rows that exist for several instruction sets, for the source file that registers operators. A
// backend declares a table of functions of plain pointers, one for each instruction set,
//
//     struct Norm { const void* x; void* y; int64_t length, stride; double eps; };      // what a kernel is given
//     struct Table { ByDtype<Norm> norm; };
//     namespace avx2 { extern const Table table; }              // and baseline, avx512; on aarch64 baseline, bf16
//
// which sources compiled for them define (opwheel/cpu/vectorized_rows.h), and runs the machine's best:
//
//     static const Table& table = best("waves", baseline::table, avx2::table, avx512::table);   // on x86-64
//     run(table.norm, dtype_of(x), arguments, rows, length);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "opwheel/detail/allocate.h"
#include "opwheel/detail/cpu/capability.h"
#include "opwheel/detail/error.h"
#include "opwheel/detail/tensor.h"

// IWYU pragma: begin_exports
#include "opwheel/cpu/row_table.h"
#include "opwheel/cpu/rows.h"
#include "opwheel/detail/cpu/streaming.h"
// IWYU pragma: end_exports

namespace opwheel::cpu {

// The table of the machine's best instruction set: `better` has those after the baseline, in the order of
// InstructionSet.
template <class Table, class... Tables>
const Table& best(const char* library, const Table& baseline, const Tables&... better) {
  const Table* const tables[] = {&baseline, &better...};
  return *tables[std::min(static_cast<std::size_t>(instruction_set(library)), sizeof...(better))];
}

// Runs a kernel for all rows, on several threads where there is work enough. `cost` is that of a row, in elements.
// Arguments may have a member `stream`: whether results are written with non-temporal stores
// (opwheel/detail/cpu/streaming.h).
template <class Arguments>
void run(const ByDtype<Arguments>& kernel, ScalarType dtype, const Arguments& arguments, int64_t rows, int64_t cost) {
  const int32_t code = code_of(dtype);
  const DType known = dtype_from_code(code);
  if (known == DType::unsupported) {
    fail("there is no kernel for ", dtype_name(code), ", only for ", kSupportedDTypes,
         "; pass one of those, converted with .to(...) where it is a tensor");
  }
  const auto function = kernel.functions[index_of(known)];
  const auto part = [&](int64_t begin, int64_t end) {
    function(arguments, begin, end);
#if defined(__x86_64__)
    // Before other threads may be told that streamed results are there.
    if constexpr (requires { arguments.stream; })
      if (arguments.stream) __builtin_ia32_sfence();
#endif
  };
  try {
    for_row_ranges(rows, cost, part);
  } catch (const std::bad_alloc&) {  // of a Buffer
    fail(code::launch, " there is no memory for the intermediate values of a row; free some");
  }
}

}  // namespace opwheel::cpu
