"""The command, in a process of its own as a user has it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def opwheel_audit(*options, **kwargs):
    """Run ``opwheel audit`` in the root of the repository."""
    command = [sys.executable, "-m", "opwheel", "audit", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **kwargs)
