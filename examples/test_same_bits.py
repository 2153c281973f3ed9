"""The example trains on what it samples, and finds no difference with transformer_ops."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("same_bits.py")


@pytest.mark.slow
def test_no_bit_differs():
    result = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    for dtype, ours, plain in zip(("float32", "bfloat16"), lines[::2], lines[1::2], strict=True):
        assert ours == f"transformer_ops, {dtype}: 0 of 432 log-probabilities differ, by 0 at most"
        assert re.fullmatch(rf"plain torch, {dtype}: \d+ of 432 log-probabilities differ, by [\d.e-]+ at most", plain)
