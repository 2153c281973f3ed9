"""Runs tests with the coverage of one package of opwheel, and fails where it falls below what was reached.

python -m tests.covered registry FOLDER ...    # pytest's arguments

The coverage of dispatch is measured in the tests of every rule and of derivatives, and in a second run of two files
with the derivatives' kernels in Python: what only fuzzed or compiled calls reach does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEAST = {"registry": 100, "dispatch": 98}  # percent
WITHOUT_NATIVE = {"dispatch": ["tests/unit/test_dispatch.py", "tests/unit/test_elementwise_rule.py"]}


def main(package: str, *arguments: str) -> int:
    """Run them; the exit status is that of the first step that fails."""
    # A file of its own, as two of these run side by side; which package, pyproject.toml reads from the variable.
    environment = {**os.environ, "COVERED": package, "COVERAGE_FILE": str(ROOT / f".coverage-{package}")}

    def coverage(*step: str, **more: str) -> int:
        command = [sys.executable, "-m", "coverage", *step]
        return subprocess.run(command, env=environment | more, cwd=ROOT, check=False).returncode

    codes = [coverage("erase"), coverage("run", "-m", "pytest", *arguments)]
    if package in WITHOUT_NATIVE:
        codes.append(coverage("run", "-m", "pytest", *WITHOUT_NATIVE[package], OPWHEEL_AUTOGRAD="python"))
    codes += [coverage("combine", "--quiet"), coverage("report", "--fail-under", str(LEAST[package]))]
    return next(filter(None, codes), 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
