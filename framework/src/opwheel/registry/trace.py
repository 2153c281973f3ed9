"""``<LIBRARY>_TRACE=1``: every step of an import on stderr, with the milliseconds since the first one."""

from __future__ import annotations

import sys
import time


class Tracer:
    """Prints steps when it is enabled."""

    def __init__(self, prefix: str, enabled: bool) -> None:
        self.prefix = prefix
        self.enabled = enabled
        self.start = time.perf_counter()

    def __call__(self, step: str, detail: object = "") -> None:
        if self.enabled:
            elapsed = (time.perf_counter() - self.start) * 1e3
            print(f"[{self.prefix} {elapsed:8.2f} ms] {step}: {detail}", file=sys.stderr)
