"""Runs everything that needs a GPU, on a machine that has a Python with torch and pytest, and these wheels.

Nothing is compiled and nothing is downloaded: the wheels, built on any machine, are unpacked into a folder of their
own, and the machine's own torch uses them. docs/cuda.md says how to bring them along.

    python tests/gpu_suite.py --wheels dist --out results              # everything
    python tests/gpu_suite.py --wheels dist --out results kit layouts  # some steps
    python tests/gpu_suite.py --wheels dist --out results --jobs 14    # kits by operators, beside each other
    python tests/gpu_suite.py ... --jobs 14 --seconds 540              # what nine minutes can answer

OUT/results.json says what the machine is and, for each step, its exit code, its seconds and how many tests passed,
failed and were skipped (and why); beside it are each step's log and the benchmarks' reports. It is rewritten after each
step. Interrupted, terminated or out of time, the suite stops what runs, writes what came of it, and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
MULADD = [sys.executable, "-m", "muladd"]
TRANSFORMER = [sys.executable, "-m", "transformer_ops"]
GRACE_S = 20
OTHER_DEVICES = ("muladd_sycl-", "muladd_executorch-")  # `make wheels` may have built them, too
CUDA_TESTS = ROOT / "backends/cuda/tests"
TRANSFORMER_BACKENDS = ROOT / "libraries/transformer/backends"
CUDA_TEST_FILES = ("test_gpu.py", "test_long_rows.py")
CLUSTERS = "vocabulary or (test_values and (-softmax- or [softmax-))"
NON_ELEMENTWISE_TESTS = ROOT / "tests/non_elementwise"
POLL_S = 0.1
MULADD_PROMISE = {"MULADD_REQUIRE": "cuda"}
STOP = threading.Event()
"""Set when the suite is to end."""


class Step(NamedTuple):
    """A command; of which library it runs the kit, if it does."""

    command: list[str]
    kit_of: str = ""
    is_alone: bool = False
    """It measures time, needs the memory of the whole device, or answers what comes next: nothing runs beside it."""
    environment: dict[str, str] = {}  # noqa: RUF012  # nobody writes into it
    """Which backends it may use, and must find."""
    limit_s: float = math.inf
    """Seconds that it may take, if they are fewer than every step's."""

    def parts(self, name: str, operators: list[str]) -> dict[str, Step]:
        """A step for each operator, with those that belong to it."""
        groups: dict[str, list[str]] = defaultdict(list)
        for operator in operators:
            groups[re.sub(r"(_backward|_training|_|\.\w+)$", "", operator)].append(operator)
        return {
            f"{name}.{group}": self._replace(command=[*self.command, "--operators", ",".join(members)])
            for group, members in groups.items()
        }


def kit(library: str, backend: str, *arguments: str) -> Step:
    """The conformance kit, or a part of it."""
    chosen = ["--library", library, "--backend", backend, "-W", "ignore::DeprecationWarning"]
    return Step([*PYTEST, "--pyargs", "opwheel_tools.testing", *chosen, *arguments], kit_of=library)


def steps(out: Path, *, quick: bool = False, has_rows: bool = False) -> dict[str, Step]:
    """Each step, in the order in which they run: first what a few minutes can answer."""
    gpu_tests = str(CUDA_TESTS / "test_gpu.py")
    # The simulation of a GPU leaves out what depends on no device; a GPU is asked everything.
    whole = () if quick else ("--whole-kit",)
    every = ("--every-claim",)
    layouts = ["-p", "opwheel_tools.testing.conftest", str(CUDA_TESTS / "layouts.py")]
    layouts += ["--library", "muladd", "--backend", "cuda"]
    fast = ["--quick"] if quick else []

    def bench(command: list[str], name: str) -> Step:
        return Step([*command, "bench", "--device", "cuda", "--json", str(out / f"{name}.json"), *fast], is_alone=True)

    def of(backend: str, step: Step) -> Step:
        """With that backend of transformer_ops for GPUs alone, which must load."""
        chosen = {"TRANSFORMER_OPS_BACKENDS": f"{backend},cpu", "TRANSFORMER_OPS_REQUIRE": backend}
        return step._replace(environment=chosen)

    cuda_tests, long_rows = (str(TRANSFORMER_BACKENDS / "cuda/tests" / name) for name in CUDA_TEST_FILES)
    triton_tests = str(TRANSFORMER_BACKENDS / "triton/tests")
    speed = [sys.executable, "-m", "benchmarks.gpu", "--warm", "--json", str(out / "speed.json"), *fast]
    rows = {
        "rows": Step(
            [
                *PYTEST,
                str(NON_ELEMENTWISE_TESTS / "device_checks.py"),
                str(NON_ELEMENTWISE_TESTS / "cuda/device_checks.py"),
            ]
        ),
        "rows-kit": kit("tests.non_elementwise.device_library", "cuda")._replace(kit_of=""),
    }
    return {
        "doctor": Step([*MULADD, "doctor", "--json"]),
        "transformer-doctor": Step([*TRANSFORMER, "doctor", "--json"]),
        # Clusters of blocks wait for each other: where one waits for ever, the step is stopped, and named.
        "transformer-cuda-clusters": of("cuda", Step([*PYTEST, long_rows, "-k", CLUSTERS], is_alone=True, limit_s=60)),
        "transformer-cuda-long-rows": of("cuda", Step([*PYTEST, long_rows], limit_s=150)),
        "transformer-cuda-kit": of("cuda", kit("transformer_ops", "cuda", *whole, "-m", "not compiles")),
        "transformer-cuda-tests": of("cuda", Step([*PYTEST, cuda_tests, "-m", "not slow"])),
        "speed": Step(speed, is_alone=True),
        "probe": Step([*PYTEST, str(CUDA_TESTS / "test_probe.py")]),
        "gpu": Step([*PYTEST, gpu_tests, "-m", "not slow"], is_alone=True),
        "layouts": Step([*PYTEST, *layouts]),
        "kit": kit("muladd", "cuda", *whole, "-m", "not compiles and not huge"),
        "huge": kit("muladd", "cuda", "-m", "huge", "--huge")._replace(is_alone=True, kit_of=""),
        **(rows if has_rows else {}),
        "transformer-kernels": of("triton", Step([*PYTEST, triton_tests])),
        "transformer-kit": of("triton", kit("transformer_ops", "triton", *whole, "-m", "not compiles")),
        # None is claimed yet: those that hold in every run can be.
        "transformer-claims": of(
            "triton", kit("transformer_ops", "triton", *every, "-k", "invariance", "-m", "not compiles")
        ),
        "benchmark": bench(MULADD, "benchmark"),
        "transformer-benchmark": bench(TRANSFORMER, "transformer-benchmark"),
        "transformer-cuda-sanitizer": of("cuda", Step([*PYTEST, cuda_tests, "-m", "slow"], is_alone=True)),
        "sanitizer": Step([*PYTEST, gpu_tests, "-m", "slow"], is_alone=True),
        "compile": kit("muladd", "cuda", *whole, "-m", "compiles"),
        "transformer-cuda-compile": of("cuda", kit("transformer_ops", "cuda", *whole, *every, "-m", "compiles")),
        "transformer-compile": of("triton", kit("transformer_ops", "triton", *whole, *every, "-m", "compiles")),
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
    with log.open("w") as file:
        # A group of its own: whoever interrupts the suite and its group leaves it to the suite to stop the step.
        step = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True
        )  # fmt: skip
        try:
            while step.poll() is None and time.perf_counter() < start + limit_s and not STOP.wait(POLL_S):
                pass
            late = "stopped with the suite" if STOP.is_set() else f"stopped after {limit_s:g} s"
            code: int | str = late if step.returncode is None else step.returncode
        finally:
            stop(step)
    result: dict[str, Any] = {"exit": code, "seconds": round(time.perf_counter() - start, 1)}
    if report.exists():
        result |= outcomes(report)
        report.unlink()
    return result


def stop(step: subprocess.Popen[bytes]) -> None:
    """Interrupted, pytest and the benchmark still write down what they have. Nothing where it has ended."""
    step.send_signal(signal.SIGINT)
    try:
        step.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(step.pid, signal.SIGKILL)
        step.wait()


def outcomes(report: Path) -> dict[str, Any]:
    """What pytest says became of the tests."""
    # Written by pytest a moment ago. A test in which it was interrupted has no name there.
    cases = [case for case in ET.parse(report).getroot().iter("testcase") if case.get("name")]
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = Counter(skip.get("message", "") for case in cases for skip in case.iter("skipped"))
    return {
        "passed": len(cases) - len(failed) - skipped.total(),
        "failed": [f"{case.get('classname')}::{case.get('name')}" for case in failed],
        "skipped": dict(skipped),
    }


def row_libraries(folder: Path) -> dict[str, str]:
    """The variables by which tests/non_elementwise finds what tests/wheels/row_kernels.py has built."""
    files = {"WAVES_SCHEMAS": "libwaves_schemas.so", "WAVES_KERNELS": "libwaves_cuda.so"}
    return {"WAVES_DEVICE": "cuda"} | {variable: str(folder / file) for variable, file in files.items()}


def is_wanted(name: str, asked: list[str]) -> bool:
    """A step, or one of its parts; everything where nothing is asked for."""
    return not asked or name in asked or name.partition(".")[0] in asked


def split(known: dict[str, Step], environment: dict[str, str]) -> dict[str, Step]:
    """Kits by operators."""
    found: dict[str, Step] = {}
    for name, step in known.items():
        found |= step.parts(name, operators(step.kit_of, environment)) if step.kit_of else {name: step}
    return found


def operators(library: str, environment: dict[str, str]) -> list[str]:
    """The names of a library's operators."""
    code = f"import {library} as m; print(*{{one.operator.name for one in m.library.overloads.values()}})"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return sorted(result.stdout.split())


DESCRIBE = """
import json, torch
from opwheel_tools.bench.machine import describe_machine
print(json.dumps(describe_machine("cuda" if torch.cuda.is_available() else "cpu")))
"""


def machine(environment: dict[str, str]) -> dict[str, object]:
    """What the benchmarks say of it."""
    command = [sys.executable, "-c", DESCRIBE]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    description: dict[str, object] = json.loads(result.stdout)
    return description


def run_all(chosen: dict[str, Step], jobs: int, out: Path, environment: dict[str, str], limit_s: float) -> bool:
    """Run the steps in their order, side by side those that follow each other and are not alone; whether all passed."""
    results: dict[str, Any] = {}
    document = {"machine": machine(environment), "steps": results}

    def one(name: str) -> dict[str, Any] | None:
        if STOP.is_set():
            return None
        step = chosen[name]
        matrix = ["--matrix", str(out / f"{name}.json")] if step.kit_of else []
        limit = min(limit_s, step.limit_s)
        return run(name, [*step.command, *matrix], out, environment | step.environment, limit)

    def note(name: str, result: dict[str, Any] | None) -> None:
        if result is None:
            return
        results[name] = result
        (out / "results.json").write_text(json.dumps(document, indent=1) + "\n")
        summary = {key: len(value) if isinstance(value, list) else value for key, value in result.items()}
        print(name, json.dumps({key: value for key, value in summary.items() if key != "skipped"}), flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        for is_alone, names in groupby(chosen, lambda name: chosen[name].is_alone):
            if is_alone:
                for name in names:
                    note(name, one(name))
                continue
            running = {pool.submit(one, name): name for name in names}
            for done in as_completed(running):
                note(running[done], done.result())
    if STOP.is_set():
        print(f"stopped: {len(chosen) - len(results)} of {len(chosen)} steps were not started", file=sys.stderr)
    return not STOP.is_set() and all(result["exit"] == 0 for result in results.values())


def main() -> int:
    """Install, run the steps, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, required=True, help="folder with the wheels")
    parser.add_argument("--rows", type=Path, help="folder of tests/wheels/row_kernels.py's libraries: their steps, too")
    parser.add_argument("--out", type=Path, required=True, help="folder for results.json and logs")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a step may take")
    parser.add_argument("--seconds", type=float, help="when the suite stops, as if it was interrupted")
    parser.add_argument("--quick", action="store_true", help="benchmarks of few and small cases")
    parser.add_argument("--jobs", type=int, default=1, help="steps that run at once, kits split by operators")
    parser.add_argument("steps", nargs="*", help="steps to run, all parts of them; all without any")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: STOP.set())
    if options.seconds is not None:
        timer = threading.Timer(options.seconds, STOP.set)
        timer.daemon = True  # the suite may end before
        timer.start()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    known = steps(out, quick=options.quick, has_rows=options.rows is not None)
    if unknown := {name.partition(".")[0] for name in options.steps} - set(known):
        parser.error(f"unknown steps {sorted(unknown)}; known are {list(known)}")
    with tempfile.TemporaryDirectory() as site:
        install(options.wheels, Path(site))
        environment = os.environ | MULADD_PROMISE | {"PYTHONPATH": site}
        if options.rows is not None:
            environment |= {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"} | row_libraries(options.rows.resolve())
        if options.jobs > 1 or any("." in name for name in options.steps):
            asked = {name.partition(".")[0] for name in options.steps or known}
            known = split({name: step for name, step in known.items() if name in asked}, environment)
        for name in options.steps:
            if not any(is_wanted(step, [name]) for step in known):
                parser.error(f"there is no step {name}; parts of it are {[one for one in known if '.' in one]}")
        wanted = {name: step for name, step in known.items() if is_wanted(name, options.steps)}
        passed = run_all(wanted, options.jobs, out, environment, options.limit)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
