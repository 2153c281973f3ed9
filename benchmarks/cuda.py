"""Bandwidth and launch overhead on a GPU, next to a device-to-device copy, addcmul, eager PyTorch and torch.compile.

Each sample is one call between two events; the candidates of a case and the copy take turns, so that a change of
clocks meets all of them alike, and medians are compared. Bandwidth counts the bytes that must be moved: every input
once, every output once. Before the timing each candidate's result is compared with float64.

    python benchmarks/cuda.py --json benchmarks/results/cuda.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import muladd
import torch
from muladd.bench.machine import describe_machine

CHANNELS, WIDTH = 64, 4096
DTYPES = ["float16", "bfloat16", "float32", "float64"]
Function = Callable[..., Any]


@dataclass
class Case:
    """The same computation by several candidates; ``bytes`` is what each of them has to move."""

    arguments: tuple[torch.Tensor, ...]
    bytes: int
    candidates: dict[str, Function]


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values in [-2, 2], which no candidate can exploit."""
    return torch.rand(shape, device="cuda").mul_(4).sub_(2).to(dtype)


def case(ours: Function, eager: Function, *arguments: torch.Tensor, addcmul: Function | None = None) -> Case:
    """A case with its usual candidates."""
    results = eager(*arguments)
    moved = [*arguments, *(results if isinstance(results, tuple) else [results])]
    candidates = {"muladd": ours, "eager": eager, "compile": torch.compile(eager, fullgraph=True, dynamic=False)}
    if addcmul is not None:
        candidates["addcmul"] = addcmul
    return Case(arguments, sum(value.numel() * value.element_size() for value in moved), candidates)


def cases(count: int, dtype: torch.dtype) -> dict[str, Callable[[], Case]]:
    """Made one at a time: each holds several gigabytes."""

    def flat() -> torch.Tensor:
        return tensor(count, dtype=dtype)

    def row() -> torch.Tensor:
        return tensor(WIDTH, dtype=dtype)

    def column() -> torch.Tensor:
        return tensor(CHANNELS, 1, dtype=dtype)

    def swap_last_two(function: Function) -> Function:
        return lambda x, g, h: function(h, x, g)

    number = torch.full((), 1.5, dtype=dtype, device="cuda")
    scale_and_shift = (muladd.fma, lambda x, g, h: x * g + h)
    return {
        "muladd": lambda: case(
            lambda a, b: muladd.muladd(a, b, 1.5),
            lambda a, b: a * b + 1.5,
            flat(),
            flat(),
            addcmul=lambda a, b: torch.addcmul(number, a, b),
        ),
        "fma": lambda: case(*scale_and_shift, flat(), flat(), flat(), addcmul=swap_last_two(torch.addcmul)),
        "scale and shift": lambda: case(
            *scale_and_shift, flat().view(-1, WIDTH), row(), row(), addcmul=swap_last_two(torch.addcmul)
        ),
        "scale and shift of channels": lambda: case(
            *scale_and_shift, flat().view(-1, CHANNELS, WIDTH), column(), column(), addcmul=swap_last_two(torch.addcmul)
        ),
        "rows that are not whole vectors": lambda: case(
            *scale_and_shift,
            flat()[: count // 1001 * 1001].view(-1, 1001),
            tensor(1001, dtype=dtype),
            tensor(1001, dtype=dtype),
        ),
        "not aligned alike": lambda: case(muladd.mul, torch.mul, flat()[1:-1], flat()[2:]),
        "one operand transposed": lambda: case(
            muladd.mul, torch.mul, flat().view(-1, WIDTH), flat().view(WIDTH, -1).t()
        ),
        "backward": lambda: case(
            torch.ops.muladd.muladd_backward, lambda g, a, b: (g * b, g * a), flat(), flat(), flat()
        ),
    }


def check(case: Case) -> None:
    """The first and last million elements of every candidate's results against float64.

    Raises:
        AssertionError: a candidate computes something else.
    """
    for function in case.candidates.values():
        results = function(*case.arguments)
        references = case.candidates["eager"](*(value.double() for value in case.arguments))
        pairs = zip(*(value if isinstance(value, tuple) else (value,) for value in (results, references)), strict=True)
        for result, reference in pairs:
            tolerance = 8 * torch.finfo(result.dtype).eps
            for part in (slice(None, 1_000_000), slice(-1_000_000, None)):
                torch.testing.assert_close(
                    result.reshape(-1)[part].double(), reference.reshape(-1)[part], rtol=tolerance, atol=tolerance
                )
        del results, references, pairs


def sample_ms(function: Function, arguments: tuple[torch.Tensor, ...]) -> float:
    """One call, timed by the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function(*arguments)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def bandwidth(case: Case, rounds: int) -> dict[str, Any]:
    """Median and quartiles of each candidate, and of a copy of the first argument's size."""
    source = tensor(case.arguments[0].numel(), dtype=case.arguments[0].dtype)
    target = torch.empty_like(source)
    calls = {name: (function, case.arguments) for name, function in case.candidates.items()}
    calls["copy"] = (target.copy_, (source,))
    sizes = dict.fromkeys(calls, case.bytes) | {"copy": 2 * source.numel() * source.element_size()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 3):
        for name, (function, arguments) in calls.items():
            elapsed = sample_ms(function, arguments)
            if turn >= 3:  # the first ones warm up
                samples[name].append(elapsed)
    report: dict[str, Any] = {}
    for name, times in samples.items():
        low, median, high = statistics.quantiles(times, n=4)
        report[name] = {
            "median_ms": round(median, 4),
            "quartiles_ms": [round(low, 4), round(high, 4)],
            "gigabytes_per_s": round(sizes[name] / median / 1e6, 1),
        }
    copy = report["copy"]["gigabytes_per_s"]
    for entry in report.values():
        entry["of_copy"] = round(entry["gigabytes_per_s"] / copy, 3)
        entry["times_muladd"] = round(entry["median_ms"] / report["muladd"]["median_ms"], 3)
    return report


def launch_overhead(rounds: int, calls: int = 500) -> dict[str, Any]:
    """Microseconds of the host for a call on 4 elements, while the device keeps up."""
    a, b, c = (tensor(4) for _ in range(3))
    with_number = torch.compile(lambda a, b: a * b + 1.5, fullgraph=True)
    candidates: dict[str, Callable[[], Any]] = {
        "muladd.muladd": lambda: muladd.muladd(a, b, 1.5),
        "torch.ops.muladd.muladd": lambda: torch.ops.muladd.muladd.default(a, b, 1.5),
        "muladd.fma": lambda: muladd.fma(a, b, c),
        "addcmul": lambda: torch.addcmul(c, a, b),
        "eager": lambda: a * b + 1.5,
        "compile": lambda: with_number(a, b),
    }
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 3):
        for name, call in candidates.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            torch.cuda.synchronize()
            if turn >= 3:
                samples[name].append((time.perf_counter() - start) / calls * 1e6)
    return {name: round(statistics.median(times), 3) for name, times in samples.items()}


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--log2-elements", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float16", "bfloat16", "float32", "float64"]
    )
    options = parser.parse_args()
    muladd.require("cuda")
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "device": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "elements": 2**options.log2_elements,
        "rounds": options.rounds,
        "launch_us": launch_overhead(options.rounds),
    }
    for dtype in options.dtypes:
        for name, make in cases(2**options.log2_elements, getattr(torch, dtype)).items():
            torch.compiler.reset()  # the cases share functions, which would soon be compiled too often
            made = make()
            check(made)
            report.setdefault("bandwidth", {}).setdefault(dtype, {})[name] = result = bandwidth(made, options.rounds)
            print(
                dtype, name, json.dumps({key: (entry["median_ms"], entry["of_copy"]) for key, entry in result.items()})
            )
            del made
            torch.cuda.empty_cache()
            if options.json:
                options.json.write_text(json.dumps(report, indent=1) + "\n")
    print("launch overhead in microseconds:", json.dumps(report["launch_us"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
