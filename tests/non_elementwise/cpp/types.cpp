// Kernels for the operators of types.h; the result is the text of what has arrived.
#include "types.h"

#include <algorithm>
#include <cstdio>

#include "opwheel/kernels.h"
#include "opwheel/schema_library.h"
#include "random.h"

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
  std::copy(all.begin(), all.end(), data<uint8_t>(bytes));
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
