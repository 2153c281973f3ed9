// Rows: the elements of an element-wise operator along the innermost dimension, as many times as the next one has. A
// call takes them all, because a row may be as short as the channels of an image. This header and those that the
// kernels include besides are compiled once for each instruction set; nothing in them may be an inline function with
// external linkage that a linker could take from the wrong one, so they keep to plain types and to namespaces of their
// own.
#pragma once

#include <cstdint>

namespace muladd::cpu {

constexpr int kRowOperands = 5;  // outputs first, then inputs; muladd_backward has two and three

enum class Type : uint8_t { float16, bfloat16, float32, float64 };

struct RowSpec {
  int64_t steps[kRowOperands];      // in bytes from one element to the next; 0 where one value is for the whole row
  int64_t row_steps[kRowOperands];  // in bytes from one row to the next
  Type types[kRowOperands];
  double parameter;  // of the functor: the c of muladd, the factor of scale
  bool stream;       // the results will not be needed soon: write them past the caches
};

// rows >= 1 rows of n >= 1 elements; data[i] is operand i's first. An output may be the very elements of an input (in
// place), never a shifted view of them.
using Rows = void (*)(const RowSpec& spec, char* const* data, int64_t n, int64_t rows);

enum class Function : uint8_t { muladd, muladd_backward, fma, mul, add, scale };

// The fastest loop for the operands. `result` is the type of the outputs.
using ChooseRows = Rows (*)(Function function, Type result, const RowSpec& spec);

namespace baseline {
Rows choose_rows(Function function, Type result, const RowSpec& spec);
}
#if defined(__x86_64__) && !defined(OPWHEEL_BASELINE_ONLY)
namespace avx2 {
Rows choose_rows(Function function, Type result, const RowSpec& spec);
}
namespace avx512 {
Rows choose_rows(Function function, Type result, const RowSpec& spec);
}
#endif

}  // namespace muladd::cpu
