"""Every step of an import: to the logger ``opwheel.registry``, and with ``<LIBRARY>_TRACE=1`` to stderr.

What became of a backend is logged as INFO, every other step as DEBUG: nothing is seen before a program asks for it with
``logging.basicConfig(level="INFO")`` or the like. Each record has what its text says as attributes, too: ``library``,
``step``, and ``backend``, ``state`` and ``code``, which are empty where a step has none.
"""

from __future__ import annotations

import logging
import sys
import time

from ..text import printable

LOGGER = logging.getLogger("opwheel.registry")


class Tracer:
    """Logs the steps of a library's import, and prints them when it is enabled."""

    def __init__(self, prefix: str, enabled: bool) -> None:
        self.prefix = prefix
        self.enabled = enabled
        self.start = time.perf_counter()

    def __call__(
        self,
        step: str,
        detail: object = "",
        level: int = logging.DEBUG,
        *,
        backend: str = "",
        state: str = "",
        code: str = "",
    ) -> None:
        text = printable(str(detail))
        fields = {"library": self.prefix, "step": step, "backend": printable(backend), "state": state, "code": code}
        LOGGER.log(level, "%s: %s: %s", self.prefix, step, text, extra=fields)
        if self.enabled:
            elapsed = (time.perf_counter() - self.start) * 1e3
            print(f"[{self.prefix} {elapsed:8.2f} ms] {step}: {text}", file=sys.stderr)
