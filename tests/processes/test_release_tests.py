"""Tests of wheels, which run before a release alone: their imports work on every day."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_release_tests_are_collected():
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests/release"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    for file in (ROOT / "tests/release").glob("test_*.py"):
        assert f"tests/release/{file.name}::" in result.stdout
