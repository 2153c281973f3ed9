"""Runs a command and says that it is still running: a dot for every two seconds in which it prints nothing.

    python release/progress.py COMMAND [ARGUMENT ...]

For what is quiet for long: pip while it downloads and compiles, a compiler on a loaded machine.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence

SECONDS = 2.0


def run(command: Sequence[str]) -> int:
    """The command's exit status; what it prints goes on to standard output, errors where they went."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    descriptor, dots = child.stdout.fileno(), False
    while True:
        ready, _, _ = select.select([descriptor], [], [], SECONDS)
        text = os.read(descriptor, 65536) if ready else b"."
        if dots and (ready or not text):
            _write(b"\n")
        dots = not ready
        if not text:
            return child.wait()
        _write(text)


def _write(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
