// Derivatives without Python, a line for each: what they differ from PyTorch's own by, or the error.
//
//     derivatives LIBRARY... -- WAVES_LIBRARY...
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "opwheel/load.h"

using at::Tensor;
using torch::autograd::grad;

namespace {

// The kernels of waves.
TORCH_LIBRARY_IMPL(waves, CPU, m) {
  m.impl("cube", [](const Tensor& x) { return x * x * x; });
  m.impl("square", [](const Tensor& x) { return std::make_tuple(x * x, 2 * x); });
  m.impl("both", [](const Tensor& x, const Tensor& y) { return x * y; });
  m.impl("pooled", [](const Tensor& x, const Tensor& w) { return x.sum(0) * w; });
  m.impl("reciprocal", [](const Tensor& x) { return 1 / x; });
  m.impl("sign", [](const Tensor& x) { return x.sign(); });
}

Tensor one(const std::string& name, std::vector<c10::IValue> arguments) {
  const size_t dot = std::min(name.find('.'), name.size());
  const std::string overload = name.substr(std::min(dot + 1, name.size()));
  c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(), overload.c_str()).callBoxed(&arguments);
  return arguments[0].toTensor();
}

void print(const char* what, const std::function<Tensor()>& difference) {
  try {
    std::printf("%s: %.1e\n", what, difference().abs().max().item<double>());
  } catch (const c10::Error& error) {
    std::printf("%s: %s\n", what, error.what_without_backtrace());
  }
}

Tensor leaf(double value) { return at::full({3}, value, at::kDouble).requires_grad_(); }

Tensor first(const Tensor& y, const Tensor& x, bool again = false) {
  return grad({y.sum()}, {x}, {}, /*retain_graph=*/again, again)[0];
}

void muladd() {
  const Tensor a = leaf(1.5), b = leaf(-0.75), c = leaf(2);
  const auto fma = [&] { return one("muladd::fma", {a * a, b * b, c}); };
  const auto plain = [&] { return a * a * b * b + c; };
  print("first", [&] { return first(fma(), a) - first(plain(), a); });
  print("second", [&] { return first(first(fma(), a, true), b) - first(first(plain(), a, true), b); });
  print("in place", [&] {
    Tensor target = a * 2;
    one("muladd::muladd_", {target, b, 1.0});
    return first(target, b) - 2 * a;
  });
  print("stale", [&] {
    const Tensor kept = b * 1, result = one("muladd::mul", {a, kept});
    kept.detach().mul_(2);
    return first(result, a);
  });
  print("out", [&] { return one("muladd::mul.out", {a, b, at::empty({3}, at::kDouble)}); });
  print("forward mode", [&] {
    const auto level = torch::autograd::ForwardADLevel::get_next_idx();
    const Tensor dual = at::_make_dual(a.detach(), at::ones_like(a), static_cast<int64_t>(level));
    return one("muladd::mul", {dual, b.detach()});
  });
}

void waves() {
  const Tensor x = leaf(3), y = leaf(2);
  print("a function", [&] { return first(one("waves::cube", {x}), x); });
  print("a result", [&] { return first(one("waves::square", {x}), x) - 2 * x; });
  print("a result, twice", [&] { return first(one("waves::square", {x}), x, true); });
  print("one text", [&] { return first(one("waves::both", {x, y.detach()}), x) - y; });
  print("one function", [&] { return first(one("waves::both", {x.detach(), y}), y); });
  print("a property", [&] {
    Tensor given = x * 1;
    const c10::weak_intrusive_ptr<at::TensorImpl> alive(given.getIntrusivePtr());
    const Tensor result = one("waves::pooled", {std::move(given), y});
    TORCH_CHECK(alive.expired(), "the argument is kept");
    return first(result, x) - y.detach().sum();
  });
  print("no gradient", [&] { return one("waves::pooled", {x.detach(), y}).requires_grad() ? x : x * 0; });
  print("nothing", [&] { return first(one("waves::reciprocal", {x}), x); });
  print("none", [&] { return first(one("waves::sign", {x}), x); });
}

}  // namespace

// Large results have memory that is kept for the next ones, also without Python: prints how much.
void print_kept_memory() {
  const Tensor large = at::full({1 << 20}, 1.5, at::kDouble);
  for (int i = 0; i < 2; ++i) one("muladd::mul", {large, large});
  const auto bytes = reinterpret_cast<std::uint64_t (*)()>(dlsym(RTLD_DEFAULT, "opwheel_cache_bytes"));
  if (bytes != nullptr) std::printf("kept memory: %llu\n", static_cast<unsigned long long>(bytes()));
}

int main(int argc, char** argv) try {
  char** const end = argv + argc;
  char** const separator = std::find(argv + 1, end, std::string("--"));
  opwheel::load("muladd", {argv + 1, separator});
  muladd();
  print_kept_memory();
  if (separator == end) return 0;
  opwheel::load("waves", {separator + 1, end});
  waves();
  opwheel::load("waves", {separator + 1, end});  // changes nothing
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
