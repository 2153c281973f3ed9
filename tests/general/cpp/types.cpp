// An operator for each type that an argument of a C++ kernel can have; the result is the text of what has arrived.
#include <cstdio>
#include <cstring>

#include "opwheel/kernels.h"
#include "opwheel/schema_library.h"
#include "random.h"

#define TYPES(KERNEL)                                                                                     \
  KERNEL(number, "number(Tensor x, float value) -> Tensor")                                               \
  KERNEL(integer, "integer(Tensor x, int value) -> Tensor")                                               \
  KERNEL(symbolic, "symbolic(Tensor x, SymInt value) -> Tensor")                                          \
  KERNEL(boolean, "boolean(Tensor x, bool value) -> Tensor")                                              \
  KERNEL(string, "string(Tensor x, str value) -> Tensor")                                                 \
  KERNEL(dtype, "dtype(Tensor x, ScalarType value) -> Tensor")                                            \
  KERNEL(device, "device(Tensor x, Device value) -> Tensor")                                              \
  KERNEL(layout, "layout(Tensor x, Layout value) -> Tensor")                                              \
  KERNEL(memory_format, "memory_format(Tensor x, MemoryFormat value) -> Tensor")                          \
  KERNEL(tensor, "tensor(Tensor x, Tensor value) -> Tensor")                                              \
  KERNEL(optional_number, "optional_number(Tensor x, float? value) -> Tensor")                            \
  KERNEL(optional_integer, "optional_integer(Tensor x, int? value) -> Tensor")                            \
  KERNEL(optional_symbolic, "optional_symbolic(Tensor x, SymInt? value) -> Tensor")                       \
  KERNEL(optional_boolean, "optional_boolean(Tensor x, bool? value) -> Tensor")                           \
  KERNEL(optional_string, "optional_string(Tensor x, str? value) -> Tensor")                              \
  KERNEL(optional_dtype, "optional_dtype(Tensor x, ScalarType? value) -> Tensor")                         \
  KERNEL(optional_device, "optional_device(Tensor x, Device? value) -> Tensor")                           \
  KERNEL(optional_layout, "optional_layout(Tensor x, Layout? value) -> Tensor")                           \
  KERNEL(optional_memory_format, "optional_memory_format(Tensor x, MemoryFormat? value) -> Tensor")       \
  KERNEL(optional_tensor, "optional_tensor(Tensor x, Tensor? value) -> Tensor")                           \
  KERNEL(numbers, "numbers(Tensor x, float[] value) -> Tensor")                                           \
  KERNEL(integers, "integers(Tensor x, int[2] value) -> Tensor")                                          \
  KERNEL(symbolics, "symbolics(Tensor x, SymInt[] value) -> Tensor")                                      \
  KERNEL(booleans, "booleans(Tensor x, bool[] value) -> Tensor")                                          \
  KERNEL(strings, "strings(Tensor x, str[] value) -> Tensor")                                             \
  KERNEL(tensors, "tensors(Tensor x, Tensor[] value) -> Tensor")                                          \
  KERNEL(optional_tensors, "optional_tensors(Tensor x, Tensor?[] value) -> Tensor")                       \
  KERNEL(optional_numbers, "optional_numbers(Tensor x, float[]? value) -> Tensor")                        \
  KERNEL(optional_integers, "optional_integers(Tensor x, int[]? value) -> Tensor")                        \
  KERNEL(optional_symbolics, "optional_symbolics(Tensor x, SymInt[]? value) -> Tensor")                   \
  KERNEL(optional_booleans, "optional_booleans(Tensor x, bool[]? value) -> Tensor")                       \
  KERNEL(optional_strings, "optional_strings(Tensor x, str[]? value) -> Tensor")                          \
  KERNEL(optional_list, "optional_list(Tensor x, Tensor[]? value) -> Tensor")                             \
  KERNEL(generator, "generator(Tensor x, Generator value) -> Tensor")                                     \
  KERNEL(optional_generator, "optional_generator(Tensor x, Generator? value) -> Tensor")                  \
  KERNEL(dropout, "dropout(Tensor x, float p, Generator? generator=None) -> (Tensor y, Tensor mask)")     \
  KERNEL(twelve,                                                                                          \
         "twelve(Tensor x, int a, float b, bool c, str d, int e=5, float f=0.5, *, int[] g=[7, 8], int? " \
         "h=None, Tensor? i=None, ScalarType j=double, str k='l') -> Tensor")                             \
  KERNEL(triples, "triples(Tensor x) -> ()")

OPWHEEL_KERNEL_SCHEMA_LIBRARY(waves_types, TYPES)

namespace {

using namespace opwheel;

std::string text(const Tensor& tensor) { return "tensor of " + std::to_string(TensorInfo(tensor).numel); }
std::string text(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  return digits;
}
std::string text(int64_t value) { return std::to_string(value); }
std::string text(bool value) { return value ? "True" : "False"; }
std::string text(std::string_view value) { return std::string(value); }
std::string text(ScalarType value) { return dtype_name(code_of(value)); }
std::string text(Device value) { return value.name(); }
std::string text(Layout value) { return value == Layout::Strided ? "strided" : "another layout"; }
std::string text(MemoryFormat value) {
  return value == MemoryFormat::ChannelsLast ? "channels_last" : "another memory format";
}
std::string text(const Generator& value) { return "generator on " + text(detail::Taken<Device>::from(value.device())); }
template <class T>
std::string text(const std::vector<T>& values);
template <class T>
std::string text(const std::optional<T>& value) {
  return value ? text(*value) : "None";
}
template <class T>
std::string text(const std::vector<T>& values) {
  std::string all = "[";
  for (const auto& value : values) all += (all.size() == 1 ? "" : ", ") + text(static_cast<const T&>(value));
  return all + "]";
}

template <class... Values>
Tensor written(const Tensor& x, const Values&... values) {
  std::string all;
  ((all += (all.empty() ? "" : "; ") + text(values)), ...);
  Tensor bytes = new_empty({static_cast<int64_t>(all.size())}, ScalarType::Byte, device_of(x));
  std::memcpy(data<uint8_t>(bytes), all.data(), all.size());
  return bytes;
}

template <class T>
Tensor take(const Tensor& x, T value) {
  return written(x, value);
}

Tensor twelve(const Tensor& x, int64_t a, double b, bool c, std::string_view d, int64_t e, double f,
              const std::vector<int64_t>& g, std::optional<int64_t> h, const std::optional<Tensor>& i, ScalarType j,
              std::string_view k) {
  return written(x, a, b, c, d, e, f, g, h, i, j, k);
}

void triples(const Tensor& x) { check(x, "x").shape({-1, 3}).contiguous(); }

}  // namespace

OPWHEEL_KERNELS(waves_types, CPU, m) {
  using namespace waves_types;
  implement<op::number, take<double>>(m);
  implement<op::integer, take<int64_t>>(m);
  implement<op::symbolic, take<int64_t>>(m);
  implement<op::boolean, take<bool>>(m);
  implement<op::string, take<std::string_view>>(m);
  implement<op::dtype, take<ScalarType>>(m);
  implement<op::device, take<Device>>(m);
  implement<op::layout, take<Layout>>(m);
  implement<op::memory_format, take<MemoryFormat>>(m);
  implement<op::tensor, take<const Tensor&>>(m);
  implement<op::optional_number, take<std::optional<double>>>(m);
  implement<op::optional_integer, take<std::optional<int64_t>>>(m);
  implement<op::optional_symbolic, take<std::optional<int64_t>>>(m);
  implement<op::optional_boolean, take<std::optional<bool>>>(m);
  implement<op::optional_string, take<const std::optional<std::string>&>>(m);
  implement<op::optional_dtype, take<std::optional<ScalarType>>>(m);
  implement<op::optional_device, take<std::optional<Device>>>(m);
  implement<op::optional_layout, take<std::optional<Layout>>>(m);
  implement<op::optional_memory_format, take<std::optional<MemoryFormat>>>(m);
  implement<op::optional_tensor, take<const std::optional<Tensor>&>>(m);
  implement<op::numbers, take<const std::vector<double>&>>(m);
  implement<op::integers, take<const std::vector<int64_t>&>>(m);
  implement<op::symbolics, take<const std::vector<int64_t>&>>(m);
  implement<op::booleans, take<const std::vector<bool>&>>(m);
  implement<op::strings, take<const std::vector<std::string>&>>(m);
  implement<op::tensors, take<const std::vector<Tensor>&>>(m);
  implement<op::optional_tensors, take<const std::vector<std::optional<Tensor>>&>>(m);
  implement<op::optional_numbers, take<const std::optional<std::vector<double>>&>>(m);
  implement<op::optional_integers, take<const std::optional<std::vector<int64_t>>&>>(m);
  implement<op::optional_symbolics, take<const std::optional<std::vector<int64_t>>&>>(m);
  implement<op::optional_booleans, take<const std::optional<std::vector<bool>>&>>(m);
  implement<op::optional_strings, take<const std::optional<std::vector<std::string>>&>>(m);
  implement<op::optional_list, take<const std::optional<std::vector<Tensor>>&>>(m);
  implement<op::generator, take<const Generator&>>(m);
  implement<op::optional_generator, take<const std::optional<Generator>&>>(m);
  implement<op::dropout, waves::dropout>(m);
  implement<op::twelve, twelve>(m);
  implement<op::triples, triples>(m);
}
