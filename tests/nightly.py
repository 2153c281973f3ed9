"""Runs what takes hours, and writes what came of it into a file that is committed.

    python -m tests.nightly                                       # everything, as `make nightly`
    TEST_FUZZ_EXAMPLES=100 python -m tests.nightly --out x.json fuzz    # a part, with other numbers than the usual ones

The file has, for each part, when it ran, on which commit and machine, the environment variables that say how much,
and how many tests passed, failed and were skipped (and why). Parts that did not run this time stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from tests.gpu_suite import run

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/nightly.json"


class Part(NamedTuple):
    """Arguments of pytest, variables that are set unless the caller has, and the environment that has what it needs."""

    tests: tuple[str, ...]
    variables: dict[str, str]
    python: str = sys.executable


def on_xpu(*tests: str, **variables: str) -> Part:
    """A part in the environment with the SYCL runtime, on simulated devices."""
    needed = {"PYTHONPATH": str(ROOT / "tests"), "MULADD_REQUIRE": "sycl"}
    return Part(tests, variables | needed, str(ROOT / ".venv-sycl/bin/python"))


PARTS = {
    "left out": Part(
        (
            *("tests", "backends", "examples", "libraries", "-m", "nightly"),
            *(f"--ignore=tests/{folder}" for folder in ("release", "deploy", "third_party", "audit")),
        ),
        {"TEST_NIGHTLY": "1"},
    ),
    "left out on XPU": on_xpu(
        *("tests/wheels/test_sycl_rows.py", "backends/sycl/tests/test_headers.py", "-m", "nightly"), TEST_NIGHTLY="1"
    ),
    "third-party": Part(("tests/third_party",), {"TEST_WHOLE_KIT": "1", "TEST_NIGHTLY": "1"}),
    "third-party on XPU": on_xpu(
        *("tests/third_party/test_new_backend.py", "tests/third_party/test_mixed_library.py", "-k", "intel"),
        TEST_WHOLE_KIT="1",
        TEST_NIGHTLY="1",
    ),
    "CUDA": Part(
        ("tests/wheels/test_simulated_cuda.py", "backends/cuda"), {"TEST_WHOLE_KIT": "1", "TEST_NIGHTLY": "1"}
    ),
    "mutants": Part(("tests/mutants",), {}),
    "new operator": Part(("tests/wheels/test_one_more_operator.py",), {"TEST_WHOLE_KIT": "1"}),
    "new operator on XPU": on_xpu("-p", "simulated_xpu", "tests/wheels/test_one_more_operator.py", TEST_WHOLE_KIT="1"),
    "audit": Part(("tests/audit",), {"TEST_WHOLE_AUDIT": "1", "TEST_NIGHTLY": "1"}),
    "transformer": Part(
        ("--pyargs", "opwheel_tools.testing", "--library", "transformer_ops", "--backend", "cpu"),
        {"TRANSFORMER_OPS_REQUIRE": "cpu"},
    ),
    "transformer in Triton": Part(
        (
            "--pyargs",
            "opwheel_tools.testing",
            "--library",
            "transformer_ops",
            "--backend",
            "triton",
            "-k",
            "not growth and not invariance",  # which the next part proves with few rows
        ),
        {"TRANSFORMER_OPS_REQUIRE": "triton", "TRANSFORMER_OPS_BACKENDS": "triton", "TRITON_INTERPRET": "1"},
    ),
    "claims in Triton": Part(
        ("libraries/transformer/backends/triton/tests/test_invariance.py",),
        {"TEST_NIGHTLY": "1", "TRANSFORMER_OPS_BACKENDS": "triton", "TRITON_INTERPRET": "1"},
    ),
    "torch": Part(("tests/release/test_torches.py",), {}),
    "aarch64": Part(("tests/release/test_aarch64.py",), {}),
    "free-threaded": Part(("tests/release/test_interpreters.py",), {"TEST_INTERPRETER": "3.14t", "TEST_NIGHTLY": "1"}),
    "other torch": Part(("tests/wheels/test_other_torch.py",), {"TEST_WHOLE_KIT": "1"}),
    "CUDA 12": Part(("tests/release/test_cuda12.py",), {}),
    "reproducible": Part(("tests/release/test_reproducible.py",), {}),
    "fuzz": Part(
        ("tests/interop", "tests/non_elementwise/test_cpp_dtypes.py", "-k", "fuzz or share"),
        {"TEST_FUZZ_EXAMPLES": "20000", "TEST_FUZZ_COMPILED": "200"},
    ),
}


def run_part(name: str, logs: Path, limit_s: float) -> dict[str, Any]:
    """The record of one part."""
    tests, variables, python = PARTS[name]
    chosen = {key: os.environ.get(key, value) for key, value in variables.items()}
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    command = [python, "-m", "pytest", "-q", *tests]
    shown = " ".join([*(f"{key}={value}" for key, value in chosen.items()), "pytest", *tests])
    result = run(name, command, logs, os.environ | chosen, limit_s)
    return {
        "started": started,
        "commit": commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "torch": metadata.version("torch"),
        "command": shown.replace(f"{ROOT}{os.sep}", ""),
        **result,
    }


def commit() -> str:
    """What is checked out, with a plus sign if files differ from it."""
    described = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    return subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Run, write after each part, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file to write")
    parser.add_argument("--limit", type=float, default=4 * 3600, help="seconds that a part may take")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all without any")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown parts {sorted(unknown)}; known are {', '.join(PARTS)}")
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    chosen = options.parts or list(PARTS)
    logs = Path(tempfile.mkdtemp(prefix="nightly-"))
    for name in chosen:
        results[name] = one = run_part(name, logs, options.limit)
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        counts = f"{one.get('passed', 0)} passed, {len(one.get('failed', []))} failed"
        print(f"{name}: exit {one['exit']}, {counts}, {one['seconds']:.0f} s; {logs / f'{name}.log'}", flush=True)
    return int(any(results[name]["exit"] != 0 for name in chosen))


if __name__ == "__main__":
    sys.exit(main())
