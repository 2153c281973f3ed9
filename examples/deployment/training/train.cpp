// Trains without Python: a network that is told which of two curves to draw, and modulates its features by that.
//
//     train LIBRARY...
//
// LIBRARY is what opwheel::load takes: cpu and autograd, or the paths that `muladd config --libs --autograd` prints.
// Each step also computes the gradients with PyTorch's own operators, in float64, so that a difference is no rounding.
// Exit codes: 0 they were always the same and the network has learned, 1 not, 2 something is missing.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "opwheel/load.h"

constexpr int64_t kWidth = 64;
constexpr int64_t kBatch = 256;
constexpr int kSteps = 300;
constexpr double kTolerance = 1e-12;  // of gradients that are sums of terms of the order of 1

using at::Tensor;

// a * b + c, with the kernel and the derivatives of muladd.
Tensor muladd_fma(const Tensor& a, const Tensor& b, const Tensor& c) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("muladd::fma", "")
                             .typed<Tensor(const Tensor&, const Tensor&, const Tensor&)>();
  return op.call(a, b, c);
}

Tensor plain_fma(const Tensor& a, const Tensor& b, const Tensor& c) { return a * b + c; }

// Features are scaled and shifted by the side condition, as in examples/digits.py.
struct Network : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(1, kWidth))};
  torch::nn::Embedding gamma{register_module("gamma", torch::nn::Embedding(2, kWidth))};
  torch::nn::Embedding beta{register_module("beta", torch::nn::Embedding(2, kWidth))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(kWidth, 1))};

  template <class Fma>
  Tensor forward(const Tensor& x, const Tensor& side, Fma fma) {
    return last(fma(first(x).tanh(), gamma(side), beta(side)).tanh());
  }
};

int main(int argc, char** argv) try {
  // The operators, their kernels, and their derivatives.
  opwheel::load("muladd", {argv + 1, argv + argc});

  at::manual_seed(0);
  Network network;
  network.to(at::kDouble);
  const std::vector<Tensor> parameters = network.parameters();
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(0.02));
  double first_loss = 0, loss_now = 0, difference = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Tensor x = at::rand({kBatch, 1}, at::kDouble) * 4 - 2;
    const Tensor side = at::randint(2, {kBatch}, at::kLong);
    const Tensor wanted = at::where(side.unsqueeze(1) == 0, at::sin(2 * x), at::cos(2 * x));

    const Tensor plain = torch::nn::functional::mse_loss(network.forward(x, side, plain_fma), wanted);
    const auto expected = torch::autograd::grad({plain}, parameters);

    optimizer.zero_grad();
    const Tensor loss = torch::nn::functional::mse_loss(network.forward(x, side, muladd_fma), wanted);
    loss.backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& found = parameters[i].grad();
      if (!found.defined()) throw std::runtime_error("a parameter has no gradient");
      const double distance = (found - expected[i]).abs().max().item<double>();
      if (!(distance <= kTolerance)) {
        std::printf("step %d: a gradient differs from PyTorch's by %.1e\n", step, distance);
        return 1;
      }
      difference = std::max(difference, distance);
    }
    optimizer.step();
    loss_now = loss.item<double>();
    if (step == 0) first_loss = loss_now;
  }
  std::printf("%d steps: loss %.3f -> %.3f, gradients differ from PyTorch's by at most %.1e\n", kSteps, first_loss,
              loss_now, difference);
  return loss_now < first_loss / 10 ? 0 : 1;
} catch (const c10::Error& error) {
  std::fprintf(stderr, "%s\n", error.what_without_backtrace());
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
