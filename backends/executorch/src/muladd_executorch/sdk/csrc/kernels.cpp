#include "kernels.h"

#include <tuple>

#include "elementwise.h"

namespace muladd_executorch {
namespace {

std::tuple<const Tensor*> tensor_of(const Tensor& tensor) { return {&tensor}; }
std::tuple<> tensor_of(double) { return {}; }
std::tuple<> number_of(const Tensor&) { return {}; }
std::tuple<double> number_of(double number) { return {number}; }

// The last tensor of an out variant is `out`, the others are its inputs.
template <class Op, class Tensors, class Numbers, std::size_t... T>
Tensor& compute(KernelRuntimeContext& context, Tensor& out, const Tensors& tensors, const Numbers& numbers,
                std::index_sequence<T...>) {
  const Tensor* const inputs[] = {std::get<T>(tensors)...};
  return std::apply(
      [&](auto... values) -> Tensor& {
        return elementwise<Op::template Functor>(context, Op::schema.name, out, inputs, values...);
      },
      numbers);
}

}  // namespace

template <class Op, std::size_t... I>
Tensor& Kernel<Op, std::index_sequence<I...>>::call(KernelRuntimeContext& context,
                                                    Argument<Op::schema.arguments[I].kind>... arguments) {
  const auto tensors = std::tuple_cat(tensor_of(arguments)...);
  constexpr std::size_t inputs = std::tuple_size_v<decltype(tensors)> - 1;
  Tensor& out = const_cast<Tensor&>(*std::get<inputs>(tensors));
  return compute<Op>(context, out, tensors, std::tuple_cat(number_of(arguments)...),
                     std::make_index_sequence<inputs>{});
}

namespace {

template <class... Operators>
constexpr auto instances(opwheel::OperatorList<Operators...>) {
  return std::make_tuple(kernel_of<Operators>()...);
}

// Naming each instance makes the compiler emit it; the linker leaves out what a program does not use.
__attribute__((used)) constexpr auto all_instances = instances(muladd::op::Operators());

}  // namespace
}  // namespace muladd_executorch
