"""The most memory during a call, where an allocator has kept what was freed before."""

import subprocess
import sys
from pathlib import Path

import pytest
from opwheel.memory.usage import peak

PROGRAM = Path(__file__).with_name("heap_that_cannot_shrink.py")


@pytest.mark.skipif(peak(lambda: None) is None, reason="the system does not tell")
def test_freed_memory_at_the_end_of_the_heap_counts_when_it_is_used_again():
    run = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) == pytest.approx(2**24, rel=0.05)
