"""The committed counts, and how a run compares with them."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from opwheel._build import toolchain

from .callgrind import ROOT, Counts
from .statements import is_control

PATH = ROOT / "benchmarks/results/instructions.json"
PATH_ON_CUDA = PATH.with_name("instructions-cuda.json")
UPDATE = "make instructions"
UPDATE_ON_CUDA = "TEST_RECORD=1 TEST_NIGHTLY=1 pytest tests/wheels/test_transformer_cuda.py -k instructions"
# Repeated runs differ by up to a hundredth: dictionaries and allocators depend on addresses.
TOLERANCE = 0.03


@dataclass(frozen=True)
class Record:
    """Counts, and what decides them besides muladd's sources."""

    environment: dict[str, str]
    tolerance: float
    counts: Counts

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def load(path: Path) -> Record:
    """Read what :meth:`Record.save` wrote."""
    return Record(**json.loads(path.read_text()))


def environment() -> dict[str, str]:
    """Of this process."""
    version = subprocess.run([*toolchain.find_cxx(), "-dumpfullversion"], capture_output=True, text=True, check=True)
    return {
        "compiler": f"{toolchain.find_cxx()[0]} {version.stdout.strip()}",
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def differences(record: Record, here: dict[str, str]) -> list[str]:
    """Why the record cannot be compared with counts from here; empty if it can."""
    keys = sorted(record.environment.keys() | here.keys())
    return [
        f"{key} was {record.environment.get(key)}, is {here.get(key)}"
        for key in keys
        if record.environment.get(key) != here.get(key)
    ]


def compare(record: Record, counts: Counts, update: str = UPDATE) -> list[str]:
    """What takes more instructions than recorded, or has no record; update: the command that makes a new one."""
    findings = []
    for instruction_set in sorted(record.counts.keys() | counts.keys()):
        before, now = record.counts.get(instruction_set, {}), counts.get(instruction_set, {})
        for name in sorted(before.keys() | now.keys()):
            if name not in before or name not in now:
                where = "the record" if name not in before else "this run"
                findings.append(f"{instruction_set} {name} is not in {where}: {update}")
            elif now[name] > before[name] * (1 + record.tolerance):
                findings.append(_finding(instruction_set, name, before[name], now[name], update))
    return findings


def _finding(instruction_set: str, name: str, before: int, now: int, update: str) -> str:
    change = f"{instruction_set} {name}: {now} instructions, {now / before - 1:+.1%} of {before}"
    if is_control(name):
        return f"{change}; muladd has no part in it, so PyTorch or Python is another than in the record: {update}"
    return change
