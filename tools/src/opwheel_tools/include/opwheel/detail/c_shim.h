// C functions for models that AOTInductor compiled: they call a kernel directly rather than through the dispatcher.
// Such a function takes handles and numbers, and then one pointer for each result. A model finds it by a name that
// stands for these parameters, so that one that was compiled for others cannot be loaded.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>

#include "opwheel/detail/registration.h"
#include "opwheel/detail/tensor.h"
#include "opwheel/elementwise_kernels.h"

#define OPWHEEL_EXPORT __attribute__((visibility("default")))

namespace opwheel::detail {

// The caller keeps its handle, so that it is taken out of the Tensor again.
class Borrowed {
 public:
  explicit Borrowed(AtenTensorHandle handle) : tensor_(handle) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() { tensor_.release(); }
  operator const Tensor&() const { return tensor_; }  // NOLINT(*-explicit-constructor): kernels take tensors

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

// Stands for a schema's arguments, their types and names in order, and the number of results: all that the caller of a
// C function has to know. 32 bits of FNV-1a; opwheel/aotinductor.py computes the same.
constexpr std::uint32_t digest_of_call(const Schema& schema) {
  std::uint32_t digest = 2166136261;
  const auto add = [&digest](std::string_view text) {
    for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 16777619;
  };
  for (int i = 0; i < schema.argument_count; ++i) {
    add(schema.arguments[i].kind == ArgumentKind::number ? "float " : "Tensor ");
    add(schema.arguments[i].name);
    add(", ");
  }
  add("->");
  for (int i = 0; i < schema.return_count; ++i) add(" Tensor");
  return digest;
}

}  // namespace opwheel::detail

// Exports the address of an operator's C function. Used in the namespace <library>::<device>, which has the operators
// as op:: and a Backend. No template can have C linkage, and no macro can put a number that is computed into a name: so
// the symbol is that of a template's static member, waves::cpu::aoti_torch_cpu_axpby<digest>::function.
#define OPWHEEL_C_SHIM(device, identifier)                                                                            \
  template <std::uint32_t digest>                                                                                     \
  struct OPWHEEL_EXPORT aoti_torch_##device##_##identifier {                                                          \
    static decltype(&::opwheel::detail::CShim<op::identifier, Backend>::call) const function;                         \
  };                                                                                                                  \
  template <>                                                                                                         \
  decltype(&::opwheel::detail::CShim<op::identifier, Backend>::call)                                                  \
      const aoti_torch_##device##_##identifier<::opwheel::detail::digest_of_call(op::identifier::schema)>::function = \
          &::opwheel::detail::CShim<op::identifier, Backend>::call;
