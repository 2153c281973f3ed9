"""How processes end."""

from __future__ import annotations

import signal


def how_it_ended(code: int) -> str:
    """A process's exit status in words, as subprocess gives it: negative numbers are signals."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
