"""Starts the processes of the backends, and those that compile for them."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .document import Run, load

STARTS = 10
"""Of a backend's process, which ends with a kernel that fails."""
GRACE_S = 20
"""A case may take that much longer than there is time."""
ROW_S = 60
"""Longer takes no row, even if something is compiled: a process that is then still at it waits for ever."""
POLL_S = 0.2


def environment(backend: str, cache: Path) -> dict[str, str]:
    """Of a process: its backend, and where compiled kernels are kept."""
    folders = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
    one_thread = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # no processes of inductor's while something is measured
    return os.environ | folders | one_thread | {"TRANSFORMER_OPS_BACKENDS": backend}


def command(options: argparse.Namespace, backend: str) -> list[str]:
    """Of a process."""
    words = [sys.executable, "-m", "benchmarks.gpu.worker", backend, "--device", options.device]
    words += ["--quick"] if options.quick else []
    return words + (["--is-second"] if backend != options.backends[0] else [])


def warm(options: argparse.Namespace) -> bool:
    """Compile in parallel; two thirds of the processes for the first backend, which takes all baselines along."""
    until = time.time() + options.warm_seconds
    first = max(1, 2 * options.jobs // 3)
    processes = []
    for backend in options.backends:
        jobs = first if backend == options.backends[0] else max(1, (options.jobs - first) // len(options.backends[1:]))
        for number in range(jobs):
            words = [*command(options, backend), "--share", str(number), str(jobs)]
            processes.append(subprocess.Popen(words, env=environment(backend, options.cache)))
    try:
        codes = [process.wait(max(0.1, until - time.time())) for process in processes]
    except subprocess.TimeoutExpired:
        print(f"not everything was compiled in {options.warm_seconds:g} s", file=sys.stderr)
        return False
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return not any(codes)


def measure(options: argparse.Namespace, backend: str, until: float) -> bool:
    """Run a backend's process, again where it ended in the middle of a case."""
    words = [*command(options, backend), "--json", str(options.json), "--until", str(until)]
    for _ in range(STARTS):
        code, said = run_worker(words, environment(backend, options.cache), options, until)
        if code == 0:
            return True
        print(said[-2000:], file=sys.stderr)
        has_row = options.json.exists() and note_stopped(options.json, backend, said)
        if not has_row or time.time() > until:
            return False
    return False


def run_worker(
    words: list[str], variables: dict[str, str], options: argparse.Namespace, until: float
) -> tuple[int, str]:
    """Run a process until it ends, the time is up or a row takes too long; its exit code, and what it said."""
    with tempfile.TemporaryFile("w+") as said:
        start = time.time()
        process = subprocess.Popen(words, env=variables, stderr=said)
        stopped = ""
        try:
            while process.poll() is None and not stopped:
                time.sleep(POLL_S)
                written = options.json.stat().st_mtime if options.json.exists() else start
                if time.time() > until + GRACE_S:
                    stopped = "stopped: there was no more time"
                elif time.time() > max(start, written) + options.row_seconds:
                    stopped = f"stopped: it took more than {options.row_seconds:g} s"
        finally:
            process.kill()
            code = process.wait()
        said.seek(0)
        return code, stopped or said.read()


def note_stopped(path: Path, backend: str, said: str) -> bool:
    """Write down during which row a process ended; False where it was during none."""
    document = load(path)
    run = document.runs.get(backend, Run())
    unfinished = [name for name, row in run.rows.items() if row is None and name not in run.stopped]
    for name in unfinished:
        run.stopped[name] = last_words(said)
    document.save(path)
    return bool(unfinished)


def last_words(said: str) -> str:
    """The error with which a process ended, behind which there may be advice."""
    lines = said.strip().splitlines() or ["it said nothing"]
    return next((line for line in reversed(lines) if "Error: " in line), lines[-1])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--warm", action="store_true", help="compile what is compiled first, in parallel")
    parser.add_argument("--json", type=Path, help="results, rewritten after every case")
    parser.add_argument("--backends", default="cuda,triton", help="of transformer_ops; baselines go with the first")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu, which is to see whether everything runs")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, and no code is generated for torch.compile")
    parser.add_argument(
        "--seconds", type=float, default=200, help="time for everything; three quarters for the first backend"
    )
    parser.add_argument("--row-seconds", type=float, default=ROW_S, help="time for a row, with its compilation")
    parser.add_argument("--warm-seconds", type=float, default=120, help="time for compiling")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "benchmarks-gpu-cache")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which ends the processes of the backends as well
    options.backends = options.backends.split(",")
    if options.json is None and not options.warm:
        parser.error("--json, or --warm")
    passed = warm(options) if options.warm else True
    if options.json is not None:
        passed = measure_all(options)
    return int(not passed)


def measure_all(options: argparse.Namespace) -> bool:
    """Measure the backends, one after the other, and say what is wrong."""
    start, passed = time.time(), True
    options.json.unlink(missing_ok=True)
    for backend in options.backends:
        share = 1.0 if backend == options.backends[-1] else 0.75
        passed &= measure(options, backend, start + share * options.seconds)
    findings = load(options.json).findings() if options.json.exists() else ["nothing was measured"]
    print(*findings, sep="\n")
    return passed and not findings


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; what was measured is in the file")
