// Calls of other operators from a kernel: of the same library, of PyTorch (`aten::`), of somebody else.
//
//     OPWHEEL_CALLEE(layer_norm, "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, "
//                                "Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)")
//
//     auto [y, mean, rstd] = call<layer_norm>(x, {columns}, std::nullopt, std::nullopt, 1e-5);
//
// The schema stands at namespace scope, as the operator declares it. It makes the call's signature: arguments and
// results are what those of a kernel are (opwheel/kernels.h), so a Tensor is returned by value, several as a
// std::array, and where a mutable argument is returned the call returns void. Arguments with defaults may be left out
// of it; aliases that are not written, `Tensor(a)`, are left out always.
//
// The first call compares the schema with the operator's own in this process. Arguments are found by their names, and
// those that the call does not have get the operator's defaults: an operator may get more arguments with defaults, and
// no caller has to be built again. Anything else that differs is an error with both schemas. The registry compares them
// when it loads the library, too, and refuses the library (OPWHEEL-E032).
//
// A call goes through PyTorch's dispatcher, below Autograd and Autocast: nothing is recorded, dtypes stay as they are,
// and version counters are left alone. The operator's derivative is that of the kernel as a whole. An error of the
// operator comes through with its message.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "opwheel/detail/abi.h"
#include "opwheel/detail/call_plan.h"
#include "opwheel/detail/error.h"
#include "opwheel/detail/registration.h"
#include "opwheel/detail/schema.h"

// IWYU pragma: begin_exports
#include "opwheel/detail/allocate.h"
#include "opwheel/detail/arguments.h"
// IWYU pragma: end_exports

namespace opwheel {
namespace detail {
namespace dispatcher {

// The schema of an operator, "aten::sum.dim_IntList", as PyTorch prints it; null where there is none. It lives as long
// as the process.
using SchemaOf = const char* (*)(const char* name);
// torch_call_dispatcher() below Autograd and Autocast, for an operator that still has so many arguments; kOtherSchema
// where it has not.
using Call = AOTITorchError (*)(const char* name, const char* overload, StableIValue* stack, uint64_t argument_count,
                                uint64_t built_with);
inline constexpr AOTITorchError kOtherSchema = 2;

// What the operator said that failed last in this thread; null where PyTorch does not tell it, before torch 2.13.
using LastError = const char* (*)();

// What PyTorch's C functions do not offer in every release. Whoever opens the library gives it: the registry in Python,
// opwheel/load.h in C++. Every library has its own.
inline std::atomic<SchemaOf> schema_of{nullptr};
inline std::atomic<Call> call{nullptr};
inline std::atomic<LastError> last_error{nullptr};

// Throws where the schema is not known.
inline std::string_view schema_here(const std::string& name) {
  const SchemaOf lookup = schema_of.load(std::memory_order_acquire);
  if (lookup == nullptr) {
    fail(name,
         " is called, and its schema cannot be read: this library was opened by hand. Load it with its operator "
         "library, in C++ with opwheel::load()");
  }
  if (const char* const text = lookup(name.c_str())) return text;
  if (call.load(std::memory_order_acquire) != nullptr) {
    fail(name, " is called, and there is no such operator in this process: load the library that defines it");
  }
  fail(name,
       " is called, and its schema cannot be read in this process: load opwheel's native library as well, "
       "opwheel::load(\"<library>\", {\"<backend>\", \"autograd\"}); `<library> config --autograd` prints its file");
}

[[noreturn]] inline void fail_as_operator(const CallPlan& plan) {
  const LastError last = last_error.load(std::memory_order_acquire);
  const char* const words = last != nullptr ? last() : nullptr;
  if (words != nullptr) throw std::runtime_error(words);
  fail(plan.operator_name, " failed; this PyTorch has printed the reason to stderr, and tells it from torch 2.13 on");
}

}  // namespace dispatcher

template <class Callee>
const CallPlan& plan_of() {
  // No lock is held meanwhile: to look up a schema may take Python's. Threads that come at once each make a plan.
  static std::atomic<const CallPlan*> made{nullptr};
  const CallPlan* plan = made.load(std::memory_order_acquire);
  if (plan != nullptr) return *plan;
  const std::string name(Callee::schema.name);
  std::unique_ptr<const CallPlan> own = plan_call(Callee::schema_text, dispatcher::schema_here(name));
  if (made.compare_exchange_strong(plan, own.get(), std::memory_order_acq_rel)) plan = own.release();
  return *plan;
}

// Calls the operator with the arguments that were given, `given`; its results are in `stack`.
inline void call_planned(const CallPlan& plan, const StableIValue* given, StableIValue* stack) {
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const CallPlan::Slot& slot = plan.slots[i];
    stack[i] = slot.given >= 0 ? given[slot.given] : slot.put();
  }
  const char *const name = plan.operator_name.c_str(), *const overload = plan.overload.c_str();
  const dispatcher::Call call = dispatcher::call.load(std::memory_order_acquire);
  const AOTITorchError error = call != nullptr ? call(name, overload, stack, plan.slots.size(), TORCH_ABI_VERSION)
                                               : torch_call_dispatcher(name, overload, stack, TORCH_ABI_VERSION);
  if (error == dispatcher::kOtherSchema) {
    fail(name, " was defined anew with other arguments, or removed, since it was first called from here; start the ",
         "process again");
  }
  if (error != 0) dispatcher::fail_as_operator(plan);
}

template <ArgumentKind kind>
using Given = typename Unboxed<kind>::type;

template <class Callee, class Indices = std::make_index_sequence<Callee::schema.argument_count>>
struct Call;

template <class Callee, std::size_t... I>
struct Call<Callee, std::index_sequence<I...>> {
  auto operator()(Given<Callee::schema.arguments[I].kind>... arguments) const {
    constexpr int kResults = Callee::schema.return_count;
    const CallPlan& plan = plan_of<Callee>();
    const StableIValue given[] = {Put<std::remove_cvref_t<Given<Callee::schema.arguments[I].kind>>>::from(arguments)...,
                                  0};
    StableIValue few[16];
    std::unique_ptr<StableIValue[]> many;
    const std::size_t size = std::max<std::size_t>(plan.slots.size(), kResults);
    if (size > std::size(few)) many = std::make_unique<StableIValue[]>(size);
    StableIValue* const stack = many ? many.get() : few;
    call_planned(plan, given, stack);

    std::array<Tensor, kResults> results;
    for (int i = 0; i < kResults; ++i) {
      results[i] = Tensor(torch::stable::detail::to<AtenTensorHandle>(stack[i]));
    }
    if constexpr (Callee::schema.returns_argument || kResults == 0) {
      return;
    } else if constexpr (kResults == 1) {
      return std::move(results[0]);
    } else {
      return results;
    }
  }
};

}  // namespace detail

// call<layer_norm>(x, ...): calls what OPWHEEL_CALLEE has declared.
template <class Callee>
inline constexpr detail::Call<Callee> call{};

}  // namespace opwheel

// Looked up in a library by whoever opens it. Without `call` there is no native library for this PyTorch.
extern "C" __attribute__((visibility("default"), used)) inline void opwheel_set_dispatcher(
    opwheel::detail::dispatcher::SchemaOf schema_of, opwheel::detail::dispatcher::Call call,
    opwheel::detail::dispatcher::LastError last_error) {
  opwheel::detail::dispatcher::schema_of.store(schema_of, std::memory_order_release);
  opwheel::detail::dispatcher::call.store(call, std::memory_order_release);
  opwheel::detail::dispatcher::last_error.store(last_error, std::memory_order_release);
}

// Declares an operator that kernels call, at namespace scope: a type for call<>, from its schema with the namespace.
#define OPWHEEL_CALLEE(identifier, text)                                                                              \
  struct identifier {                                                                                                 \
    static constexpr const char* schema_text = text;                                                                  \
    static constexpr ::opwheel::Schema schema = ::opwheel::parse_schema(text);                                        \
    static_assert(schema.error != ::opwheel::SchemaError::syntax && schema.name.find("::") != std::string_view::npos, \
                  "opwheel: the schema of the callee " #identifier                                                    \
                  " is not of the form 'namespace::name(Type argument, ...) -> Type'");                               \
    static_assert(schema.error != ::opwheel::SchemaError::results,                                                    \
                  "opwheel: the callee " #identifier                                                                  \
                  " has a result that is not a Tensor, the only one that a call can take");                           \
    static_assert(                                                                                                    \
        schema.error == ::opwheel::SchemaError::none,                                                                 \
        "opwheel: the callee " #identifier                                                                            \
        " has an argument that a call cannot pass: one of a type that opwheel/detail/schema.h does not list, "        \
        "such as a Scalar, a Generator without torch_target=\"2.13\" in setup.py, or more than 32 of them. "          \
        "Leave it out of the schema if it has a default, or call another overload");                                  \
  };                                                                                                                  \
  OPWHEEL_DETAIL_NOTE(identifier##_callee_note, callee, text)
