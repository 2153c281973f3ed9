// What the arguments of a schema are in C++, and how they are taken off the dispatcher's stack:
//
//     Tensor         const Tensor&                          float         double
//     Tensor(a!)     Tensor&                                int, SymInt   int64_t
//     Tensor?        const std::optional<Tensor>&           bool          bool
//     Tensor[]       const std::vector<Tensor>&             str           std::string_view
//     ScalarType     ScalarType (torch::headeronly)         Device        Device
//     Layout         Layout (torch::headeronly)             MemoryFormat  MemoryFormat (torch::headeronly)
//
// An optional T? of another type is a std::optional<T>, a list T[] a const std::vector<T>&, and T[]? a
// const std::optional<std::vector<T>>&.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/stableivalue_conversions.h>

#include <bit>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opwheel/schema.h"
#include "opwheel/tensor.h"

namespace opwheel {

using torch::headeronly::Layout;
using torch::headeronly::MemoryFormat;
using torch::headeronly::ScalarType;

namespace detail {

template <class T>
T from_stack(StableIValue value) {
  return torch::stable::detail::to<T>(value);
}

// One argument taken off the stack. It owns what it holds: the boxed calling convention hands over a reference each.
template <class Held, class Given = const Held&>
class Value {
 public:
  using type = Given;
  explicit Value(StableIValue value) : held_(from_stack<Held>(value)) {}
  Given get() { return held_; }

 private:
  Held held_;
};

template <class Given>
class TensorValue {
 public:
  using type = Given;
  explicit TensorValue(StableIValue value) : held_(from_stack<AtenTensorHandle>(value)) {}
  Tensor& get() { return held_; }

 private:
  Tensor held_;
};

class OptionalTensorValue {
 public:
  using type = const std::optional<Tensor>&;
  explicit OptionalTensorValue(StableIValue value) {
    const auto handle = from_stack<std::optional<AtenTensorHandle>>(value);
    if (handle) held_.emplace(*handle);
  }
  type get() { return held_; }

 private:
  std::optional<Tensor> held_;
};

class TensorListValue {
 public:
  using type = const std::vector<Tensor>&;
  explicit TensorListValue(StableIValue value) {
    for (AtenTensorHandle handle : from_stack<std::vector<AtenTensorHandle>>(value)) held_.emplace_back(handle);
  }
  type get() { return held_; }

 private:
  std::vector<Tensor> held_;
};

class NumberValue {
 public:
  using type = double;
  explicit NumberValue(StableIValue value) : held_(std::bit_cast<double>(value)) {}
  double get() const { return held_; }

 private:
  double held_;
};

// Device is the SDK's own, which has the codes that the other C functions take.
inline Device device_from(const torch::stable::Device& device) {
  return {torch::stable::detail::to<int32_t>(torch::stable::detail::from(device.type())), device.index()};
}

class DeviceValue {
 public:
  using type = Device;
  explicit DeviceValue(StableIValue value) : held_(device_from(from_stack<torch::stable::Device>(value))) {}
  Device get() const { return held_; }

 private:
  Device held_;
};

class OptionalDeviceValue {
 public:
  using type = std::optional<Device>;
  explicit OptionalDeviceValue(StableIValue value) {
    const auto device = from_stack<std::optional<torch::stable::Device>>(value);
    if (device) held_ = device_from(*device);
  }
  type get() const { return held_; }

 private:
  type held_;
};

template <ArgumentKind>
struct ValueOf;

#define OPWHEEL_DETAIL_VALUE(kind, ...) \
  template <>                           \
  struct ValueOf<ArgumentKind::kind> {  \
    using type = __VA_ARGS__;           \
  };
OPWHEEL_DETAIL_VALUE(tensor, TensorValue<const Tensor&>)
OPWHEEL_DETAIL_VALUE(mutable_tensor, TensorValue<Tensor&>)
OPWHEEL_DETAIL_VALUE(number, NumberValue)
OPWHEEL_DETAIL_VALUE(integer, Value<int64_t, int64_t>)
OPWHEEL_DETAIL_VALUE(boolean, Value<bool, bool>)
OPWHEEL_DETAIL_VALUE(string, Value<std::string, std::string_view>)
OPWHEEL_DETAIL_VALUE(dtype, Value<ScalarType, ScalarType>)
OPWHEEL_DETAIL_VALUE(device, DeviceValue)
OPWHEEL_DETAIL_VALUE(layout, Value<Layout, Layout>)
OPWHEEL_DETAIL_VALUE(memory_format, Value<MemoryFormat, MemoryFormat>)
OPWHEEL_DETAIL_VALUE(optional_tensor, OptionalTensorValue)
OPWHEEL_DETAIL_VALUE(optional_number, Value<std::optional<double>, std::optional<double>>)
OPWHEEL_DETAIL_VALUE(optional_integer, Value<std::optional<int64_t>, std::optional<int64_t>>)
OPWHEEL_DETAIL_VALUE(optional_boolean, Value<std::optional<bool>, std::optional<bool>>)
OPWHEEL_DETAIL_VALUE(optional_string, Value<std::optional<std::string>>)
OPWHEEL_DETAIL_VALUE(optional_dtype, Value<std::optional<ScalarType>, std::optional<ScalarType>>)
OPWHEEL_DETAIL_VALUE(optional_device, OptionalDeviceValue)
OPWHEEL_DETAIL_VALUE(optional_layout, Value<std::optional<Layout>, std::optional<Layout>>)
OPWHEEL_DETAIL_VALUE(optional_memory_format, Value<std::optional<MemoryFormat>, std::optional<MemoryFormat>>)
OPWHEEL_DETAIL_VALUE(tensor_list, TensorListValue)
OPWHEEL_DETAIL_VALUE(number_list, Value<std::vector<double>>)
OPWHEEL_DETAIL_VALUE(integer_list, Value<std::vector<int64_t>>)
OPWHEEL_DETAIL_VALUE(boolean_list, Value<std::vector<bool>>)
OPWHEEL_DETAIL_VALUE(optional_number_list, Value<std::optional<std::vector<double>>>)
OPWHEEL_DETAIL_VALUE(optional_integer_list, Value<std::optional<std::vector<int64_t>>>)
OPWHEEL_DETAIL_VALUE(optional_boolean_list, Value<std::optional<std::vector<bool>>>)
#undef OPWHEEL_DETAIL_VALUE

template <ArgumentKind kind>
using Unboxed = typename ValueOf<kind>::type;

constexpr bool is_tensor(ArgumentKind kind) {
  return kind == ArgumentKind::tensor || kind == ArgumentKind::mutable_tensor;
}

}  // namespace detail
}  // namespace opwheel
