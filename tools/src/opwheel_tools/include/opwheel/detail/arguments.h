// What the arguments of a schema are in C++, and how they are taken off the dispatcher's stack and put on it:
//
//     Tensor         const Tensor&                          float         double
//     Tensor(a!)     Tensor&                                int, SymInt   int64_t
//     Tensor?        const std::optional<Tensor>&           bool          bool
//     Tensor[]       const std::vector<Tensor>&             str           std::string_view
//     ScalarType     ScalarType (torch::headeronly)         Device        Device
//     Layout         Layout (torch::headeronly)             MemoryFormat  MemoryFormat (torch::headeronly)
//     Generator      const Generator& (torch::stable)
//
// Tensor(a!)? and Tensor(a!)[] are as Tensor? and Tensor[]: what is written to is the tensors' memory, by data(). An
// optional T? of another type is a std::optional<T>, a list T[] a const std::vector<T>&, T[]? a
// const std::optional<std::vector<T>>&, and Tensor?[] a const std::vector<std::optional<Tensor>>&. An optional string
// is a const std::optional<std::string>&, an optional generator a const std::optional<Generator>&.
//
// The stable ABI passes a Generator from torch 2.13 on, so a library with one sets torch_target="2.13" in its setup.py
// (opwheel_tools.build). It passes no Scalar in any release.
#pragma once

#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/generator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/stableivalue_conversions.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opwheel/detail/schema.h"
#include "opwheel/detail/tensor.h"

namespace opwheel {

using torch::headeronly::Layout;
using torch::headeronly::MemoryFormat;
using torch::headeronly::ScalarType;
#if OPWHEEL_DETAIL_PASSES_GENERATORS
using torch::stable::Generator;
#endif

namespace detail {

// What PyTorch converts a value of the stack to, and T made of it.
template <class T>
struct Taken {
  using Raw = T;
  static T from(Raw raw) { return raw; }
};
template <>
struct Taken<Tensor> {
  using Raw = AtenTensorHandle;
  static Tensor from(Raw handle) { return Tensor(handle); }
};
// PyTorch's own conversion (torch 2.13) never frees the string that it makes: 48 bytes a call.
template <>
struct Taken<std::string> {
  using Raw = StringHandle;
  static std::string from(Raw handle) {
    const std::unique_ptr<StringOpaque, decltype(&torch_delete_string)> owner(handle, &torch_delete_string);
    std::size_t length = 0;
    const char* characters = nullptr;
    OPWHEEL_SHIM(torch_string_length(handle, &length));
    OPWHEEL_SHIM(torch_string_c_str(handle, &characters));
    return {characters, length};
  }
};
// Device is the SDK's own, which has the codes that the other C functions take.
template <>
struct Taken<Device> {
  using Raw = torch::stable::Device;
  static Device from(const Raw& device) {
    return {torch::stable::detail::to<int32_t>(torch::stable::detail::from(device.type())), device.index()};
  }
};
template <class T>
struct Taken<std::optional<T>> {
  using Raw = std::optional<typename Taken<T>::Raw>;
  static std::optional<T> from(const Raw& raw) { return raw ? std::optional<T>(Taken<T>::from(*raw)) : std::nullopt; }
};
template <class T>
struct Taken<std::vector<T>> {
  using Raw = std::vector<typename Taken<T>::Raw>;
  static std::vector<T> from(const Raw& raw) {
    std::vector<T> values;
    values.reserve(raw.size());
    for (const auto& value : raw) values.push_back(Taken<T>::from(value));
    return values;
  }
};

// One argument taken off the stack. It owns what it holds: the boxed calling convention hands over a reference each.
template <class Held, class Given = const Held&>
class Value {
 public:
  using type = Given;
  explicit Value(StableIValue value)
      : held_(Taken<Held>::from(torch::stable::detail::to<typename Taken<Held>::Raw>(value))) {}
  Given get() { return held_; }

 private:
  Held held_;
};

// The other way: a value put on the stack. PyTorch takes over what it owns there.
template <class T>
struct Put {
  static StableIValue from(const T& value) { return torch::stable::detail::from(value); }
};
template <>
struct Put<Tensor> {
  static StableIValue from(const Tensor& tensor) {
    AtenTensorHandle reference = nullptr;
    OPWHEEL_SHIM(aoti_torch_new_tensor_handle(tensor.handle(), &reference));
    return torch::stable::detail::from(reference);
  }
};
template <>
struct Put<std::string_view> {
  static StableIValue from(std::string_view text) {
    StringHandle handle = nullptr;
    OPWHEEL_SHIM(torch_new_string_handle(text.data(), text.size(), &handle));
    return torch::stable::detail::from(handle);
  }
};
template <>
struct Put<std::string> : Put<std::string_view> {};
template <>
struct Put<Device> {
  static StableIValue from(Device device) {
    const auto type =
        torch::stable::detail::to<torch::headeronly::DeviceType>(torch::stable::detail::from(device.type));
    return torch::stable::detail::from(torch::stable::Device(type, device.index));
  }
};
template <class T>
struct Put<std::optional<T>> {
  static StableIValue from(const std::optional<T>& value) {
    if (!value) return torch::stable::detail::from(std::nullopt);
    return torch::stable::detail::from(std::optional<StableIValue>(Put<T>::from(*value)));
  }
};
template <class T>
struct Put<std::vector<T>> {
  static StableIValue from(const std::vector<T>& values) {
    std::vector<StableIValue> stack;
    stack.reserve(values.size());
    for (const auto& value : values) stack.push_back(Put<T>::from(value));
    return torch::stable::detail::from(stack);
  }
};

template <ArgumentKind>
struct ValueOf;

#define OPWHEEL_DETAIL_VALUE(kind, ...) \
  template <>                           \
  struct ValueOf<ArgumentKind::kind> {  \
    using type = __VA_ARGS__;           \
  };
OPWHEEL_DETAIL_VALUE(tensor, Value<Tensor>)
OPWHEEL_DETAIL_VALUE(mutable_tensor, Value<Tensor, Tensor&>)
OPWHEEL_DETAIL_VALUE(number, Value<double, double>)
OPWHEEL_DETAIL_VALUE(integer, Value<int64_t, int64_t>)
OPWHEEL_DETAIL_VALUE(boolean, Value<bool, bool>)
OPWHEEL_DETAIL_VALUE(string, Value<std::string, std::string_view>)
OPWHEEL_DETAIL_VALUE(dtype, Value<ScalarType, ScalarType>)
OPWHEEL_DETAIL_VALUE(device, Value<Device, Device>)
OPWHEEL_DETAIL_VALUE(layout, Value<Layout, Layout>)
OPWHEEL_DETAIL_VALUE(memory_format, Value<MemoryFormat, MemoryFormat>)
OPWHEEL_DETAIL_VALUE(optional_tensor, Value<std::optional<Tensor>>)
OPWHEEL_DETAIL_VALUE(optional_number, Value<std::optional<double>, std::optional<double>>)
OPWHEEL_DETAIL_VALUE(optional_integer, Value<std::optional<int64_t>, std::optional<int64_t>>)
OPWHEEL_DETAIL_VALUE(optional_boolean, Value<std::optional<bool>, std::optional<bool>>)
OPWHEEL_DETAIL_VALUE(optional_string, Value<std::optional<std::string>>)
OPWHEEL_DETAIL_VALUE(optional_dtype, Value<std::optional<ScalarType>, std::optional<ScalarType>>)
OPWHEEL_DETAIL_VALUE(optional_device, Value<std::optional<Device>, std::optional<Device>>)
OPWHEEL_DETAIL_VALUE(optional_layout, Value<std::optional<Layout>, std::optional<Layout>>)
OPWHEEL_DETAIL_VALUE(optional_memory_format, Value<std::optional<MemoryFormat>, std::optional<MemoryFormat>>)
OPWHEEL_DETAIL_VALUE(tensor_list, Value<std::vector<Tensor>>)
OPWHEEL_DETAIL_VALUE(optional_tensors, Value<std::vector<std::optional<Tensor>>>)
OPWHEEL_DETAIL_VALUE(number_list, Value<std::vector<double>>)
OPWHEEL_DETAIL_VALUE(integer_list, Value<std::vector<int64_t>>)
OPWHEEL_DETAIL_VALUE(boolean_list, Value<std::vector<bool>>)
OPWHEEL_DETAIL_VALUE(string_list, Value<std::vector<std::string>>)
OPWHEEL_DETAIL_VALUE(optional_tensor_list, Value<std::optional<std::vector<Tensor>>>)
OPWHEEL_DETAIL_VALUE(optional_number_list, Value<std::optional<std::vector<double>>>)
OPWHEEL_DETAIL_VALUE(optional_integer_list, Value<std::optional<std::vector<int64_t>>>)
OPWHEEL_DETAIL_VALUE(optional_boolean_list, Value<std::optional<std::vector<bool>>>)
OPWHEEL_DETAIL_VALUE(optional_string_list, Value<std::optional<std::vector<std::string>>>)
#if OPWHEEL_DETAIL_PASSES_GENERATORS
OPWHEEL_DETAIL_VALUE(generator, Value<Generator>)
OPWHEEL_DETAIL_VALUE(optional_generator, Value<std::optional<Generator>>)
#endif
#undef OPWHEEL_DETAIL_VALUE

template <ArgumentKind kind>
using Unboxed = typename ValueOf<kind>::type;

constexpr bool is_tensor(ArgumentKind kind) {
  return kind == ArgumentKind::tensor || kind == ArgumentKind::mutable_tensor;
}

}  // namespace detail
}  // namespace opwheel
