// The CPU backend of a library: every operator of its list, with loops for several instruction sets of which the
// machine's best is taken. A backend has one source file for the registrations,
//
//     #include "opwheel/cpu/backend.h"
//     #include "waves/operators.h"
//     OPWHEEL_CPU_BACKEND(waves, WAVES_OPERATORS)
//
// and one for each instruction set, baseline, avx2 and avx512, on aarch64 baseline and bf16, that setup.py compiles
// with the flags for it:
//
//     #define OPWHEEL_ISA avx2
//     #include "opwheel/cpu/vectorized_loops.h"
//     #include "waves/operators.h"
//     OPWHEEL_CPU_LOOPS(waves, WAVES_OPERATORS)
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "opwheel/detail/c_shim.h"
#include "opwheel/detail/cpu/capability.h"
#include "opwheel/detail/cpu/loop.h"
#include "opwheel/detail/cpu/parallel_loop.h"
#include "opwheel/detail/cpu/streaming.h"
#include "opwheel/detail/elementwise.h"
#include "opwheel/elementwise_kernels.h"
#include "opwheel/operators.h"

namespace opwheel::cpu {

// Whether to write the results with non-temporal stores (opwheel/detail/cpu/streaming.h).
inline bool should_stream(const ElementwisePlan& plan) {
  int64_t bytes = 0;
  for (int i = 0; i < plan.operand_count; ++i) bytes += plan.operands[i].info.numel * element_size(plan.dtype);
  if (!fills_caches(bytes)) return false;
  for (int i = 0; i < plan.input_count(); ++i) {
    if (plan.input(i).data == plan.output(0).data) return false;
  }
  constexpr int64_t kLong = 1024;  // most of such a row is whole cache lines, wherever it begins
  const char* const result = plan.output(0).data;
  const int64_t row_bytes = plan.sizes[0] * element_size(plan.dtype);
  return (row_bytes >= kLong || are_whole_lines(result, row_bytes)) &&
         is_streamable(result, plan.numel * element_size(plan.dtype));
}

// Runs the plan with the loop that `choose` takes for the strides of its two innermost dimensions. One copy for all
// operators, as detail::plan_inputs().
__attribute__((noinline)) inline void launch(const ElementwisePlan& plan, ChooseLoop choose,
                                             std::initializer_list<double> parameters) {
  LoopSpec spec{.strides = {}, .outer_strides = {}, .dtypes = {}, .parameters = {}, .stream = should_stream(plan)};
  std::copy(parameters.begin(), parameters.end(), spec.parameters);
  for (int i = 0; i < plan.operand_count; ++i) {
    spec.strides[i] = plan.ndim == 0 ? 0 : plan.operands[i].strides[0];
    spec.outer_strides[i] = plan.ndim < 2 ? 0 : plan.operands[i].strides[1];
    spec.dtypes[i] = plan.operands[i].info.dtype;
  }
  const Loop2d loop = choose(plan.dtype, spec);
  parallel_loop(plan, [&](char* const* data, int64_t size, int64_t outer_size) { loop(spec, data, size, outer_size); });
}

}  // namespace opwheel::cpu

#if defined(__x86_64__) && !defined(OPWHEEL_BASELINE_ONLY)
#define OPWHEEL_DETAIL_LOOPS(function) {baseline::function, avx2::function, avx512::function}
#elif defined(__aarch64__) && !defined(OPWHEEL_BASELINE_ONLY)
#define OPWHEEL_DETAIL_LOOPS(function) {baseline::function, bf16::function}
#else
#define OPWHEEL_DETAIL_LOOPS(function) {baseline::function}
#endif

#define OPWHEEL_DETAIL_DECLARE_LOOP(identifier, Functor, text) \
  ::opwheel::cpu::Loop2d choose_##identifier(::opwheel::DType result, const ::opwheel::cpu::LoopSpec& spec);
#define OPWHEEL_DETAIL_LOOPS_OF(identifier, Functor, text) \
  template <>                                              \
  constexpr ::opwheel::cpu::ChooseLoop kLoops<op::identifier>[] = OPWHEEL_DETAIL_LOOPS(choose_##identifier);

#define OPWHEEL_DETAIL_CPU_SHIM(identifier, Functor, text) OPWHEEL_C_SHIM(cpu, identifier)

// library::cpu::Backend, as opwheel/elementwise_kernels.h wants it.
#define OPWHEEL_DETAIL_CPU_BACKEND(library, LIST)                                                     \
  namespace library::cpu {                                                                            \
  namespace baseline {                                                                                \
  LIST(OPWHEEL_DETAIL_DECLARE_LOOP, OPWHEEL_IGNORE)                                                   \
  }                                                                                                   \
  namespace avx2 {                                                                                    \
  LIST(OPWHEEL_DETAIL_DECLARE_LOOP, OPWHEEL_IGNORE)                                                   \
  }                                                                                                   \
  namespace avx512 {                                                                                  \
  LIST(OPWHEEL_DETAIL_DECLARE_LOOP, OPWHEEL_IGNORE)                                                   \
  }                                                                                                   \
  namespace bf16 {                                                                                    \
  LIST(OPWHEEL_DETAIL_DECLARE_LOOP, OPWHEEL_IGNORE)                                                   \
  }                                                                                                   \
  template <class Operator>                                                                           \
  constexpr ::opwheel::cpu::ChooseLoop kLoops[] = {nullptr};                                          \
  LIST(OPWHEEL_DETAIL_LOOPS_OF, OPWHEEL_IGNORE)                                                       \
  struct Backend {                                                                                    \
    static int32_t device_type() { return aoti_torch_device_type_cpu(); }                             \
    template <class Op, class... Params>                                                              \
    static void launch(const ::opwheel::ElementwisePlan& plan, Params... params) {                    \
      static const ::opwheel::cpu::ChooseLoop choose =                                                \
          kLoops<typename Op::Operator>[static_cast<int>(::opwheel::cpu::instruction_set(#library))]; \
      ::opwheel::cpu::launch(plan, choose, {params...});                                              \
    }                                                                                                 \
  };                                                                                                  \
  }

// Declares the operators, registers a kernel for each at the dispatch key CPU, and exports C functions for AOTInductor.
#define OPWHEEL_CPU_BACKEND(library, LIST)                  \
  OPWHEEL_DECLARE_OPERATORS(library, LIST)                  \
  OPWHEEL_DETAIL_CPU_BACKEND(library, LIST)                 \
  OPWHEEL_LIBRARY_IMPL(library, CPU, library::cpu::Backend) \
  namespace library::cpu {                                  \
  LIST(OPWHEEL_DETAIL_CPU_SHIM, OPWHEEL_IGNORE)             \
  }
