"""Time limits of processes."""

import subprocess
import sys
import time

import pytest
from opwheel_tools.judge import limits


@pytest.mark.parametrize("code", ["import time; time.sleep(60)", "while True: pass"])
def test_a_process_that_does_not_end(code):
    process = subprocess.Popen([sys.executable, "-c", code])
    assert limits.wait(process, lambda: 0.5, lambda: None) == "no end after 0.5 seconds"
    assert process.returncode < 0


def test_a_process_that_makes_progress():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
    assert limits.wait(process, lambda: 0.5, time.monotonic) == ""
