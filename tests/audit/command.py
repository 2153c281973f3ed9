"""The command: in a process of its own as a user has it, or in this one, which has imported PyTorch already."""

import subprocess
import sys
from pathlib import Path

from tests.command_line import invoke

ROOT = Path(__file__).parents[2]


def opwheel_audit(*options, **kwargs):
    """Run ``opwheel audit`` in the root of the repository."""
    command = [sys.executable, "-m", "opwheel", "audit", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **kwargs)


def opwheel_audit_here(*options):
    """Run ``opwheel audit`` in this process; its workers are processes all the same."""
    return invoke(None, "audit", *options)
