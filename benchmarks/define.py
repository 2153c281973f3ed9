"""What a call of an operator from a notebook costs: by `opwheel.define`, `define_cpp`, and `torch.library.custom_op`.

The operator of docs/operator-in-five-minutes.md, on a few elements, where the call is all that takes time. All ways are
measured by turns; the number that counts is the median of the rounds. `numpy` is the kernel's function alone.

    python benchmarks/define.py --json benchmarks/results/define.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opwheel
import opwheel_tools
import torch
from opwheel_tools.bench.machine import describe_machine
from torch import Tensor

SOURCE = """
Tensor softplus_cpp(const Tensor& given, double beta) {
  check(given, "x").on_cpu().dtype(floating);
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x);
  dispatch(dtype_of(x), [&]<class T>() {
    for (int64_t i = 0; i < numel(sizes_of(x)); ++i) {
      const auto value = Accumulate<T>(data<T>(x)[i]);
      data<T>(y)[i] = T(std::log1p(std::exp(beta * value)) / beta);
    }
  });
  return y;
}
"""


def numpy_kernel(x: Tensor, beta: float) -> Tensor:
    """The kernel in NumPy."""
    return torch.from_numpy(np.log1p(np.exp(beta * x.detach().numpy())) / beta)


def reference(x: Tensor, beta: float) -> Tensor:
    """The same in PyTorch's operators."""
    return torch.log1p(torch.exp(beta * x)) / beta


DERIVATIVES = {"x": "grad * aten::sigmoid(x * beta)"}


def gradient(grad: Tensor, x: Tensor, beta: float) -> Tensor:
    """The same as DERIVATIVES."""
    return grad * torch.sigmoid(beta * x)


def defined() -> Callable[..., Any]:
    """By opwheel.define."""
    schema = "five_minutes::softplus(Tensor x, float beta) -> Tensor"
    return opwheel.define(schema, reference=reference, derivatives=DERIVATIVES)(numpy_kernel)


def defined_in_cpp() -> Callable[..., Any]:
    """By opwheel_tools.define_cpp."""
    schema = "five_minutes::softplus_cpp(Tensor x, float beta) -> Tensor"
    return opwheel_tools.define_cpp(schema, SOURCE, reference=reference, derivatives=DERIVATIVES)


def custom_op() -> Callable[..., Any]:
    """By torch.library.custom_op."""

    def softplus(x: Tensor, beta: float) -> Tensor:
        return numpy_kernel(x, beta)

    softplus.__annotations__ = {"x": Tensor, "beta": float, "return": Tensor}
    op = torch.library.custom_op("five_minutes::softplus_custom_op", softplus, mutates_args=())

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
        x, ctx.beta = inputs
        ctx.save_for_backward(x)

    op.register_fake(lambda x, beta: torch.empty_like(x))  # noqa: ARG005
    op.register_autograd(
        lambda ctx, grad: (gradient(grad, *ctx.saved_tensors, ctx.beta), None), setup_context=setup_context
    )
    return op


def us_per_call(call: Callable[[], object], calls: int) -> float:
    """Microseconds."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def main() -> None:
    """Measure, and print or write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    functions = {"numpy": numpy_kernel, "define": defined(), "define_cpp": defined_in_cpp(), "custom_op": custom_op()}
    x = torch.randn(4)
    leaf = torch.randn(4, requires_grad=True)
    ways: dict[str, dict[str, Callable[[], object]]] = {
        "call_us": {name: (lambda f=f: f(x, 2.0)) for name, f in functions.items()},
        "call_and_backward_us": {
            name: (lambda f=f: torch.autograd.grad(f(leaf, 2.0).sum(), leaf))
            for name, f in functions.items()
            if name != "numpy"
        },
    }
    samples: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.rounds + 1):
        for kind, calls in ways.items():
            for name, call in calls.items():
                samples.setdefault((kind, name), []).append(us_per_call(call, options.calls))
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "rounds": options.rounds,
        "calls": options.calls,
        "elements": 4,
    }
    for kind, calls in ways.items():
        report[kind] = {name: round(statistics.median(samples[kind, name][1:]), 2) for name in calls}
    text = json.dumps(report, indent=2)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
