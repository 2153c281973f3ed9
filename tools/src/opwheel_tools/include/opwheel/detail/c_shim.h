// C functions for models that AOTInductor compiled: they call a kernel directly rather than through the dispatcher.
// Such a function is called aoti_torch_<device>_<operator>, takes handles and numbers, and then one pointer for each
// result.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <type_traits>
#include <utility>

#include "opwheel/detail/registration.h"
#include "opwheel/detail/tensor.h"
#include "opwheel/elementwise_kernels.h"

#define OPWHEEL_EXPORT __attribute__((visibility("default")))

namespace opwheel {
namespace detail {

// The caller keeps its handle, so that it is taken out of the Tensor again.
class Borrowed {
 public:
  explicit Borrowed(AtenTensorHandle handle) : tensor_(handle) {}
  Borrowed(const Borrowed&) = delete;
  ~Borrowed() { tensor_.release(); }
  operator const Tensor&() const { return tensor_; }

 private:
  Tensor tensor_;
};

inline Borrowed as_kernel_argument(AtenTensorHandle handle) { return Borrowed(handle); }
inline double as_kernel_argument(double number) { return number; }

inline void hand_over(Tensor& result, const std::array<AtenTensorHandle*, 1>& places) { *places[0] = result.release(); }

template <std::size_t N>
void hand_over(std::array<Tensor, N>& results, const std::array<AtenTensorHandle*, N>& places) {
  for (std::size_t i = 0; i < N; ++i) *places[i] = results[i].release();
}

template <ArgumentKind kind>
using CArgument = std::conditional_t<kind == ArgumentKind::number, double, AtenTensorHandle>;

using AnyFunction = void (*)();

template <std::size_t>
using CResult = AtenTensorHandle*;

template <class Op, class Backend, class Arguments = std::make_index_sequence<Op::schema.argument_count>,
          class Results = std::make_index_sequence<Op::schema.return_count>>
struct CShim;

template <class Op, class Backend, std::size_t... A, std::size_t... R>
struct CShim<Op, Backend, std::index_sequence<A...>, std::index_sequence<R...>> {
  // The caller reports only that the call failed, so the reason goes to stderr, as that of PyTorch's own C functions
  // does.
  static AOTITorchError call(CArgument<Op::schema.arguments[A].kind>... arguments, CResult<R>... results) noexcept {
    try {
      auto values = Kernel<Op, Backend>::call(as_kernel_argument(arguments)...);
      hand_over(values, std::array<AtenTensorHandle*, sizeof...(R)>{results...});
      return AOTI_TORCH_SUCCESS;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", with_operator(Op::schema.name, error.what()).c_str());
      return AOTI_TORCH_FAILURE;
    }
  }
};

}  // namespace detail
}  // namespace opwheel

// Exports aoti_torch_<device>_<identifier>. Used in a namespace that has the operators as op:: and a Backend. The
// parameters follow from the operator's schema, but no template can have C linkage: so the symbol is an indirect
// function, and the loader asks which instance it stands for when it opens the library.
#define OPWHEEL_C_SHIM(device, identifier)                                                                             \
  extern "C" {                                                                                                         \
  static ::opwheel::detail::AnyFunction resolve_aoti_torch_##device##_##identifier() {                                 \
    return reinterpret_cast<::opwheel::detail::AnyFunction>(&::opwheel::detail::CShim<op::identifier, Backend>::call); \
  }                                                                                                                    \
  OPWHEEL_EXPORT void aoti_torch_##device##_##identifier()                                                             \
      __attribute__((ifunc("resolve_aoti_torch_" #device "_" #identifier)));                                           \
  }
