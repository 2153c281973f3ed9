"""What docs/production.md says of processes that fork: what hangs, and what helps, the same with PyTorch alone."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("forking.py")
EXPECTED = {
    "not computed": "6.0",
    "small": "6.0",
    "computed": "hangs",
    "gradient": "hangs",
    "one thread before the fork": "6.0",
    "one thread in the child": "6.0",
    "gradient, one thread in the child": "5.0",
    "several threads again in the child": "hangs",
    "spawn": "[6.0, 6.0]",
    "forkserver": "[6.0, 6.0]",
    "a pool whose initializer sets one thread": "[6.0, 6.0]",
    "DataLoader": "[6.0, 6.0]",
}


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch", "muladd"])
@pytest.mark.parametrize("case", EXPECTED)
def test_fork(case, library):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", PROGRAM, library, case],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout.strip()) == (0, EXPECTED[case]), done.stderr
