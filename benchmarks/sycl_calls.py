"""Host time of the SYCL backend's calls on the simulated XPU, whose kernels run on the OpenCL CPU device.

The first call of each operator and dtype waits until the driver has compiled its kernel. Later calls only put work on a
queue: what counts is how long the host is busy with that, for 4 elements, the device being idle. Kernel times of the
OpenCL CPU device would say nothing about a GPU and are not measured.

    PYTHONPATH=tests .venv-sycl/bin/python benchmarks/sycl_calls.py --json benchmarks/results/sycl_calls.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import simulated_xpu  # first: backends load with muladd, and only where their device is
import torch
from opwheel_tools.bench.machine import describe_machine

# isort: split
import muladd

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
CALLS: dict[str, Callable[..., Any]] = {
    "muladd": lambda ops, x: ops.muladd(x, x, 1.0),
    "muladd_backward": lambda ops, x: ops.muladd_backward(x, x, x),
    "fma": lambda ops, x: ops.fma(x, x, x),
    "mul": lambda ops, x: ops.mul(x, x),
    "add": lambda ops, x: ops.add(x, x),
    "scale": lambda ops, x: ops.scale(x, 2.0),
}
BATCH = 50  # calls between two synchronizations


def first_calls() -> dict[str, float]:
    """Seconds of each kernel's first call: dense operands, then strided ones."""
    seconds = {}
    for dtype in DTYPES:
        for name, call in CALLS.items():
            for layout, step in (("dense", 1), ("strided", 2)):
                x = torch.ones(8, device="xpu").to(dtype)[::step]
                torch.accelerator.synchronize()
                start = time.perf_counter()
                call(torch.ops.muladd, x)
                torch.accelerator.synchronize()
                seconds[f"{name} {str(dtype).removeprefix('torch.')} {layout}"] = time.perf_counter() - start
    return seconds


def host_time(call: Callable[..., Any], x: torch.Tensor, samples: int) -> float:
    """Median microseconds that one call keeps the host busy."""
    times = []
    with torch.inference_mode():
        for _ in range(samples):
            start = time.perf_counter()
            for _ in range(BATCH):
                call(torch.ops.muladd, x)
            times.append((time.perf_counter() - start) / BATCH * 1e6)
            torch.accelerator.synchronize()
    return statistics.median(times)


def main() -> None:
    """Measure, print, and write the JSON where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    muladd.require("sycl")
    simulated_xpu.overwrite_freed_memory(False)  # that is the simulation's own work
    first = first_calls()
    x = torch.ones(4, device="xpu")
    report = {
        "device": "OpenCL CPU device",
        "machine": describe_machine(),
        "first_call_s": {"slowest": max(first.items(), key=lambda item: item[1]), "each": first},
        "later_call_us": {name: host_time(call, x, options.samples) for name, call in CALLS.items()},
    }
    print("first call, slowest of", len(first), report["first_call_s"]["slowest"])  # type: ignore[index]
    print("later calls, host time in us", report["later_call_us"])
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
