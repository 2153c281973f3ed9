"""Times of two ways to compute the same, taken by turns: what disturbs the machine is in both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def seconds_of(call: Callable[[], Any], times: int = 1) -> float:
    """Of one call, measured over some."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def summary(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Ratios of seconds without and with the kernels: above 1 the kernels are faster."""
    ratios = sorted(off / on for off, on in pairs)
    return {
        "off_us": round(statistics.median(off for off, _ in pairs) * 1e6, 2),
        "on_us": round(statistics.median(on for _, on in pairs) * 1e6, 2),
        "ratio": round(statistics.median(ratios), 3),
        "lower_quartile": round(statistics.quantiles(ratios, n=4)[0], 3),
        "pairs": len(pairs),
    }
