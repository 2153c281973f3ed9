"""Scale and shift of images, as normalization layers do it: muladd against plain PyTorch, timed on this machine.

    python examples/speed.py --megabytes 64

One pass over memory takes the place of two, and the new result has the memory of an earlier one that is gone. The
figures are a demonstration; `muladd bench` measures with care.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import muladd
import torch
from torch import Tensor

ROUNDS = 15


def seconds(call: Callable[[], object]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def medians(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median seconds of each, all taking turns in a new order each round."""
    times: dict[str, list[float]] = {name: [seconds(call)] for name, call in calls.items()}
    names = list(calls)
    for _ in range(ROUNDS):
        random.shuffle(names)
        for name in names:
            times[name].append(seconds(calls[name]))
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Time a scale and shift of images with muladd and with plain PyTorch.")
    parser.add_argument("--megabytes", type=int, default=64, help="size of the images (default: 64)")
    options = parser.parse_args()
    if options.megabytes < 1:
        parser.error("--megabytes must be at least 1")
    return options


def main() -> None:
    """Print the factor by which muladd is faster, or slower."""
    options = parse_options()
    torch.manual_seed(0)
    images = torch.rand(options.megabytes, 64, 64, 64)  # each of one MiB in float32
    scale, shift = torch.rand(64, 1, 1), torch.rand(64, 1, 1)

    def plain() -> Tensor:
        return images * scale + shift

    def fused() -> Tensor:
        return muladd.fma(images, scale, shift)

    assert torch.allclose(fused(), plain())
    found = medians({"muladd": fused, "plain": plain})
    ratio = found["plain"] / found["muladd"]
    print(f"images * scale + shift, {options.megabytes} MiB of float32: ", end="")
    print(f"muladd {found['muladd'] * 1e3:.1f} ms, plain torch {found['plain'] * 1e3:.1f} ms (medians)")
    print(f"muladd takes {1 / ratio:.2f} of the time: {f'{ratio:.1f} times faster' if ratio > 1 else 'slower here'}")


if __name__ == "__main__":
    main()
