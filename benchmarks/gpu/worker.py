"""The process of one backend: transformer_ops loads one for a device, and which one is chosen when it is imported."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import torch
from opwheel_tools.bench.machine import describe_machine
from opwheel_tools.bench.sampling import QUICK as QUICK_PRECISION
from opwheel_tools.bench.sampling import Precision

from .cases import QUICK, Case, Sizes, cases
from .device import Device
from .document import Document, Run, load
from .measure import FORWARD, measure, prepare, profiled, statements

PRECISION = Precision(error=0.01, seconds=0.15, settle_seconds=1e-3, rounds=(5, 60))
ALL = ("ours", "eager", "compile", "liger", "addcmul")
OURS = ("ours", "eager")
"""What a second backend is measured with: times over those of eager PyTorch in the same process can be compared."""
PACKAGES = ("muladd-cuda", "transformer-ops-cuda", "transformer-ops-triton", "liger-kernel", "triton")


def new_document(device: str) -> Document:
    """Without rows."""
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return Document(describe_machine(device), versions)


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases of this process."""
    known = cases(QUICK if options.quick else Sizes())
    return [case for case in known if case.group != "muladd" or not options.is_second]


def warm(options: argparse.Namespace, device: Device) -> None:
    """Call what is compiled, without measuring: the caches are on the disk then."""
    rows = [(case, form) for case in chosen(options) for _, form in case.named_forms()]
    for case, form in rows[options.share[0] :: options.share[1]]:
        names = {"ours"} if options.is_second else {"compile", "liger"}
        with torch.set_grad_enabled(form != FORWARD):
            turns = prepare(case, form, statements(case, names, options.compiler), device)
        for name, error in turns.errors.items():
            print(case.operator, case.size, form, name, error.splitlines()[0], file=sys.stderr)
        del turns
        device.free()


def measure_all(options: argparse.Namespace, device: Device) -> None:
    """Measure what is not there yet, until the time is up."""
    path: Path = options.json
    document = load(path) if path.exists() else new_document(device.name)
    run = document.runs.setdefault(options.backend, Run())
    precision = QUICK_PRECISION if options.quick else PRECISION
    known = {name: (case, form) for case in chosen(options) for name, form in case.named_forms()}
    for name, (case, form) in known.items():
        if name in run.rows:
            continue
        if time.time() > options.until:
            return
        run.rows[name] = None
        document.save(path)
        loads = statements(case, OURS if options.is_second else ALL, options.compiler)
        run.rows[name] = row = measure(case, form, loads, device, precision)
        document.save(path)
        walls = {one: f"{1e6 * median:.1f}" for one, (_, median, _) in row["seconds"]["wall"].items()}
        print(options.backend, name, "us:", walls, row["errors"] or "", flush=True)
        device.free()
    for name, (case, form) in known.items():
        row = run.rows[name] or {}
        missing = set(row.get("not_captured", {})) - set(row.get("seconds", {}).get("device", {}))
        if missing and time.time() < options.until:
            row["seconds"]["device"] |= profiled(case, form, statements(case, missing, options.compiler), device)
            document.save(path)


def main() -> None:
    """As `python -m benchmarks.gpu` calls it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--is-second", action="store_true")
    parser.add_argument("--until", type=float)
    parser.add_argument("--share", type=int, nargs=2)
    options = parser.parse_args()
    # Tiny sizes are to be there soon: without the compiler behind the graphs.
    options.compiler = "aot_eager" if options.quick else "inductor"
    device = Device(options.device)
    with device.stream():
        (warm if options.share else measure_all)(options, device)


if __name__ == "__main__":
    main()
