"""transformer_ops on a GPU against Liger-Kernel, eager PyTorch and torch.compile, in bfloat16 and sizes of a 7B model.

Of each operator the call, and the call with its backward pass, are timed by the GPU's events; all of them take turns,
and medians are reported, and how long the GPU is busy with transformer_ops' kernels. Results are compared with eager
PyTorch's first. Needs `pip install liger-kernel`, which is left out where it is not installed.

    python benchmarks/liger.py --json benchmarks/results/liger.json
"""

from __future__ import annotations

import argparse
import json
import timeit
from collections.abc import Callable
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformer_ops as ours
from opwheel_tools.bench.machine import describe_machine
from opwheel_tools.bench.sampling import Precision, clock_for, sample
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # as PyTorch's documentation calls it
from transformer_ops.opinfos import OP_INFOS

TOKENS, WIDTH, INNER, CLASSES = 8192, 4096, 11_008, 32_000
PRECISION = Precision(error=0.01, seconds=0.5)
CLOSE = {"rtol": 2e-2, "atol": 2e-2}  # of bfloat16


class Case(NamedTuple):
    """An operator: its inputs, and what computes it. Of Liger-Kernel's functions it has the name."""

    inputs: tuple[Tensor, ...]
    ours: Callable[..., Any]
    eager: Callable[..., Any]
    liger: tuple[str, tuple[Any, ...]]
    rest: tuple[Any, ...] = ()
    """Arguments without a gradient, for all of them."""


def make(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal numbers."""
    return (torch.randn(shape, device="cuda") * scale).bfloat16().requires_grad_()


def cases() -> dict[str, Callable[[], Case]]:
    """What makes each of them, one at a time."""
    rows, weight = partial(make, TOKENS, WIDTH), partial(make, WIDTH)
    shape = (WIDTH,)

    def add_norm(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return F.rms_norm(x + r, shape, w, 1e-6), x + r

    def rope() -> Case:
        angles = torch.randn(1, 2048, 64, device="cuda")
        tables = tuple(torch.cat((x, x), -1).bfloat16() for x in (angles.cos(), angles.sin()))
        heads = make(4, 32, 2048, 128), make(4, 8, 2048, 128)
        as_models_write_it = OP_INFOS["rope"].baselines["as models write it"]
        return Case(heads, ours.rope, as_models_write_it, ("rope", ()), tables)

    def target() -> tuple[Tensor]:
        return (torch.randint(CLASSES, (TOKENS // 2,), device="cuda"),)

    def linear_loss(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy((x @ w.t()).float(), t)

    return {
        "rms_norm": lambda: Case(
            (rows(), weight()), ours.rms_norm, lambda x, w: F.rms_norm(x, shape, w, 1e-6), ("rms_norm", (1e-6,))
        ),
        "fused_add_rms_norm": lambda: Case(
            (rows(), rows(), weight()), ours.fused_add_rms_norm, add_norm, ("fused_add_rms_norm", (1e-6,))
        ),
        "layer_norm": lambda: Case(
            (rows(), weight(), weight()),
            ours.layer_norm,
            lambda x, w, b: F.layer_norm(x, shape, w, b, 1e-5),
            ("layer_norm", (1e-5,)),
        ),
        "swiglu": lambda: Case(
            (make(TOKENS, INNER), make(TOKENS, INNER)), ours.swiglu, lambda a, b: F.silu(a) * b, ("swiglu", ())
        ),
        "geglu": lambda: Case(
            (make(TOKENS, INNER), make(TOKENS, INNER)),
            ours.geglu,
            lambda a, b: F.gelu(a, approximate="tanh") * b,
            ("geglu", ()),
        ),
        "softmax": lambda: Case((rows(),), ours.softmax, lambda x: torch.softmax(x, -1), ("softmax", ())),
        "rope": rope,
        "cross_entropy": lambda: Case(
            (make(TOKENS // 2, CLASSES),), ours.cross_entropy, F.cross_entropy, ("cross_entropy", ()), target()
        ),
        "fused_linear_cross_entropy": lambda: Case(
            (make(TOKENS // 2, WIDTH), make(CLASSES, WIDTH, scale=WIDTH**-0.5)),
            ours.fused_linear_cross_entropy,
            linear_loss,
            ("fused_linear_cross_entropy", ()),
            target(),
        ),
    }


def ways(case: Case) -> dict[str, Callable[[], Any]]:
    """What takes turns."""
    every = {"transformer_ops": case.ours, "eager": case.eager, "compiled": torch.compile(case.eager, dynamic=False)}
    found: dict[str, Callable[[], Any]] = {
        name: partial(function, *case.inputs, *case.rest) for name, function in every.items()
    }
    if util.find_spec("liger_kernel") is not None:
        from liger_kernel.transformers import functional

        name, last = case.liger
        found["liger"] = partial(getattr(functional, f"liger_{name}"), *case.inputs, *case.rest, *last)
    return found


def first(result: Any) -> Tensor:
    """What is compared, and differentiated."""
    return result[0] if isinstance(result, tuple) else result


def with_backward(way: Callable[[], Any], inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
    """The call and its backward pass."""
    arriving = torch.randn_like(first(way()))

    def both() -> Any:
        return torch.autograd.grad(first(way()), inputs, arriving, allow_unused=True)

    return both


def peak_bytes(way: Callable[[], Any]) -> int:
    """The most that a call has in the GPU's memory beyond what was there before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    way()
    return torch.cuda.max_memory_allocated() - before


def device_seconds(way: Callable[[], Any], calls: int = 5) -> float:
    """How long a call keeps the GPU busy, without the gaps between its kernels."""
    way()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            way()
        torch.cuda.synchronize()
    return sum(event.device_time_total for event in profile.key_averages()) / calls / 1e6


def measure(name: str, case: Case) -> list[dict[str, Any]]:
    """Its lines of the table."""
    calls = ways(case)
    with torch.no_grad():
        expected = first(calls["eager"]())
        for way in calls.values():
            torch.testing.assert_close(first(way()), expected, check_dtype=False, **CLOSE)
    lines = []
    for form in ("forward", "forward+backward"):
        if form == "forward":
            timed = {key: torch.no_grad()(way) for key, way in calls.items()}
        else:
            timed = {key: with_backward(way, case.inputs) for key, way in calls.items()}
        timers = {key: timeit.Timer(way) for key, way in timed.items()}
        medians = {key: one.quartiles()[1] for key, one in sample(timers, clock_for("cuda"), PRECISION).items()}
        peaks = {key: peak_bytes(way) for key, way in timed.items()}
        busy = device_seconds(timed["transformer_ops"])
        lines.append({"operator": name, "form": form, "seconds": medians, "device_seconds": busy, "peak_bytes": peaks})
        factors = "  ".join(f"{key} {one / medians['transformer_ops']:.2f}" for key, one in medians.items())
        print(f"{name:<28}{form:<18}{medians['transformer_ops'] * 1e6:8.1f} us  {factors}", flush=True)
    return lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    torch.manual_seed(0)
    modules = {"liger-kernel": "liger_kernel", "triton": "triton"}
    versions = {name: metadata.version(name) for name, module in modules.items() if util.find_spec(module)}
    document = {"machine": describe_machine("cuda"), "versions": versions, "rows": []}
    for name, factory in cases().items():
        document["rows"] += measure(name, factory())
        torch.cuda.empty_cache()
        if options.json:
            options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
