"""Runs everything that needs a GPU, on a machine that has a Python with torch and pytest, and these wheels.

Nothing is compiled and nothing is downloaded: the wheels, built on any machine, are unpacked into a folder of their
own, and the machine's own torch uses them. docs/cuda.md says how to bring them along.

    python tests/gpu_suite.py --wheels dist --out results              # everything
    python tests/gpu_suite.py --wheels dist --out results kit layouts  # some steps

OUT/results.json says, for each step, its exit code, its seconds and how many tests passed, failed and were skipped (and
why); beside it are each step's log and the benchmark's report. It is rewritten after each step.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
MULADD = [sys.executable, "-m", "muladd"]
KIT = ["--pyargs", "opwheel.testing", "--library", "muladd", "--backend", "cuda", "-W", "ignore::DeprecationWarning"]
GRACE_S = 20
OTHER_DEVICES = ("muladd_sycl-", "muladd_executorch-")  # `make wheels` may have built them, too
CUDA_TESTS = ROOT / "backends/cuda/tests"


def steps(out: Path, *, quick: bool = False) -> dict[str, list[str]]:
    """The command of each step, in the order in which they run."""
    gpu_tests = str(CUDA_TESTS / "test_gpu.py")
    bench = [*MULADD, "bench", "--device", "cuda"]
    # The simulation of a GPU leaves out what depends on no device; a GPU is asked everything.
    kit = KIT if quick else [*KIT, "--whole-kit"]
    layouts = ["-p", "opwheel.testing.conftest", str(CUDA_TESTS / "layouts.py")]
    layouts += ["--library", "muladd", "--backend", "cuda"]
    return {
        "doctor": [*MULADD, "doctor", "--json"],
        "probe": [*PYTEST, str(CUDA_TESTS / "test_probe.py")],
        "gpu": [*PYTEST, gpu_tests, "-m", "not slow"],
        "layouts": [*PYTEST, *layouts],
        "kit": [*PYTEST, *kit, "-m", "not compiles and not huge", "--matrix", str(out / "matrix.json")],
        "huge": [*PYTEST, *KIT, "-m", "huge", "--huge"],
        "benchmark": [*bench, "--json", str(out / "benchmark.json"), *(["--quick"] if quick else [])],
        "sanitizer": [*PYTEST, gpu_tests, "-m", "slow"],
        "compile": [*PYTEST, *kit, "-m", "compiles"],
    }


def install(wheels: Path, site: Path) -> None:
    """Unpack the wheels where only this run sees them."""
    files = sorted(wheels.glob("*.whl"))
    if not any(file.name.startswith("muladd_cuda-") for file in files):
        raise SystemExit(f"there is no muladd_cuda-*.whl in {wheels}: `make wheels` builds it")
    files = [file for file in files if not file.name.startswith(OTHER_DEVICES)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir"]
    subprocess.run([*command, "--target", str(site), *map(str, files)], check=True)


def run(name: str, command: list[str], out: Path, environment: dict[str, str], limit_s: float) -> dict[str, Any]:
    """One step; its report."""
    report, log = out / f"{name}.xml", out / f"{name}.log"
    if "pytest" in command:
        command = [*command, f"--junitxml={report}"]
    start = time.perf_counter()
    with log.open("w") as file, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file) as step:
        try:
            code: int | str = step.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = f"stopped after {limit_s:g} s"
            stop(step)
    result: dict[str, Any] = {"exit": code, "seconds": round(time.perf_counter() - start, 1)}
    if report.exists():
        result |= outcomes(report)
        report.unlink()
    return result


def stop(step: subprocess.Popen[bytes]) -> None:
    """Interrupted, pytest and the benchmark still write down what they have."""
    step.send_signal(signal.SIGINT)
    try:
        step.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        step.kill()


def outcomes(report: Path) -> dict[str, Any]:
    """What pytest says became of the tests."""
    cases = list(ET.parse(report).getroot().iter("testcase"))  # written by pytest a moment ago
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = Counter(skip.get("message", "") for case in cases for skip in case.iter("skipped"))
    return {
        "passed": len(cases) - len(failed) - skipped.total(),
        "failed": [f"{case.get('classname')}::{case.get('name')}" for case in failed],
        "skipped": dict(skipped),
    }


def main() -> int:
    """Install, run the steps, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, required=True, help="folder with the wheels")
    parser.add_argument("--out", type=Path, required=True, help="folder for results.json and logs")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a step may take")
    parser.add_argument("--quick", action="store_true", help="a benchmark of few and small cases")
    parser.add_argument("steps", nargs="*", help="steps to run; all without any")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    known = steps(out, quick=options.quick)
    if unknown := set(options.steps) - set(known):
        parser.error(f"unknown steps {sorted(unknown)}; known are {list(known)}")
    with tempfile.TemporaryDirectory() as site:
        install(options.wheels, Path(site))
        environment = os.environ | {"PYTHONPATH": site, "MULADD_REQUIRE": "cuda"}
        results: dict[str, Any] = {}
        for name in options.steps or known:
            results[name] = run(name, known[name], out, environment, options.limit)
            (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
            summary = {key: len(value) if isinstance(value, list) else value for key, value in results[name].items()}
            print(name, json.dumps({key: value for key, value in summary.items() if key != "skipped"}), flush=True)
    return int(any(result["exit"] != 0 for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
