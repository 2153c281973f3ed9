"""Builds, audits and installs all that can be here, and says what is missing: `python -m release.matrix`.

A table for each of three questions: which wheels there are for each processor; which Pythons take them, and have a
PyTorch on the index; where the conformance kit ran. It is also written as JSON. `--only` runs a part of it, `--no-run`
nothing, and `--no-build` takes the wheels that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .cross import TARGETS
from .interpreters import INTERPRETERS
from .platforms import platform_tags
from .projects import ROOT, projects
from .torches import RELEASES

# Tags of CPython; the last letter is that of builds without the global lock.
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t", "3.15", "3.15t")
# What runs the wheels: files of tests/release, one of them on each CPython that can be built here.
RUNS = {
    "installations": "test_installations.py",
    "Pythons": "test_pythons.py",
    "releases of PyTorch": "test_torches.py",
    "aarch64, emulated": "test_aarch64.py",
    **dict.fromkeys(INTERPRETERS, "test_interpreters.py"),
    "CUDA 12": "test_cuda12.py",
    "built twice": "test_reproducible.py",
}
HERE = platform.machine()


def folder_of(machine: str) -> Path:
    """Where the wheels for a processor are."""
    return ROOT / "dist" if machine == HERE else ROOT / "dist" / machine


def build(machine: str, releases: Iterable[str]) -> dict[str, str]:
    """By project the wheel, or why there is none."""
    command = [sys.executable, "-m", "release.build", "--out", str(folder_of(machine))]
    command += [word for release in releases for word in ("--torch", release)]
    command += ["--python", ".venv-sycl/bin/python", *(["--platform", machine] if machine != HERE else [])]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"build": f"failed: {' '.join(command)}"}
    return rows_of(done.stdout)


def rows_of(table: str) -> dict[str, str]:
    """What the table of :mod:`release.build` says of each project."""
    rows = (re.fullmatch(r"(\S+).*?(\S+\.whl|skipped: .*)", line) for line in table.splitlines())
    return {row[1]: row[2] for row in rows if row}


def there(machine: str) -> dict[str, str]:
    """By project the wheel that has been built, or why there can be none, or that it was not built."""
    wheels = {wheel.name.partition("-")[0]: wheel.name for wheel in sorted(folder_of(machine).glob("*.whl"))}
    reasons = TARGETS[machine].skipped if machine != HERE else {}
    return {
        project.name: wheels.get(project.distribution) or f"skipped: {reasons.get(project.name, 'it was not built')}"
        for project in projects()
    }


def audit(machine: str) -> str:
    """What the audit of all wheels for a processor says."""
    wheels = map(str, sorted(folder_of(machine).glob("*.whl")))
    command = [sys.executable, "-m", "release.audit", *wheels]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.strip()


def installs(machine: str, python: str) -> dict[str, str]:
    """Whether pip takes each wheel for a Python on a processor, into an empty folder, and the newest torch there is."""
    wheels = {wheel.name: str(wheel) for wheel in sorted(folder_of(machine).glob("*.whl"))}
    found = {name: "installed" if not _pip(machine, python, path) else "refused" for name, path in wheels.items()}
    torches = (release for release in reversed(RELEASES) if not _pip(machine, python, f"torch=={release}", "--dry-run"))
    return {"torch": next(torches, "none on the index"), **found}


def _pip(machine: str, python: str, *requirement: str) -> int:
    """The exit status of an installation, into a folder that is then removed."""
    version = python.rstrip("t")
    abis = ("none", "abi3", f"cp{python.replace('.', '')}")
    options = [f"--platform={tag}" for tag in platform_tags(machine)] + [f"--abi={abi}" for abi in abis]
    options += [
        "--implementation=cp",
        f"--python-version={version}",
        "--only-binary=:all:",
        "--no-deps",
        "--no-compile",
    ]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", folder]
        command += [*options, *requirement]
        return subprocess.run(command, capture_output=True, check=False).returncode


def runs(name: str) -> str:
    """How the tests of one of ``RUNS`` went, in pytest's last words."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", f"tests/release/{RUNS[name]}"]
    variables = {**os.environ, **({"TEST_INTERPRETER": name} if name in INTERPRETERS else {})}
    done = subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    return "; ".join([*(line for line in lines if line.startswith("SKIPPED")), *lines[-1:]])


def missing(report: dict[str, Any]) -> list[str]:
    """What is not there, one line each."""
    found = [
        f"{machine}: {project}: {wheel}"
        for machine, wheels in report["wheels"].items()
        for project, wheel in wheels.items()
        if not wheel.endswith(".whl")
    ]
    for cell, wheels in report["installed"].items():
        found += [f"{cell}: torch: {wheels['torch']}"] if not wheels["torch"][:1].isdigit() else []
        found += [f"{cell}: {name}: refused" for name, state in wheels.items() if state == "refused"]
    found += [f"{machine}: audit: {text}" for machine, text in report["audit"].items() if "as promised" not in text]
    return found + [
        f"{name}: {words}" for name, words in report["runs"].items() if "failed" in words or "SKIP" in words
    ]


def main() -> int:
    """The command line; exit status 1 if a build, the audit, an installation or a run failed."""
    parser = argparse.ArgumentParser(prog="python -m release.matrix", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch", action="append", metavar="RELEASE", help="PyTorch to build for; all if left out")
    parser.add_argument("--no-build", action="store_true", help="take the wheels that are there")
    parser.add_argument("--only", action="append", choices=RUNS, help="what runs; all if left out")
    parser.add_argument("--no-run", action="store_true", help="build, audit and install alone")
    parser.add_argument("--out", type=Path, default=ROOT / "dist/matrix.json", help="%(default)s")
    options = parser.parse_args()
    machines = [HERE, *(one for one in TARGETS if one != HERE)]
    report: dict[str, Any] = {
        "wheels": {one: there(one) if options.no_build else build(one, options.torch or RELEASES) for one in machines}
    }
    report["audit"] = {one: audit(one) for one in machines}
    report["installed"] = {f"{one}, Python {python}": installs(one, python) for one in machines for python in PYTHONS}
    chosen = () if options.no_run else options.only or RUNS
    report["runs"] = {name: runs(name) for name in RUNS if name in chosen}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    for machine, wheels in report["wheels"].items():
        count = sum(wheel.endswith(".whl") for wheel in wheels.values())
        print(f"{machine}: {count} of {len(wheels)} projects; {report['audit'][machine]}")
    for cell, wheels in report["installed"].items():
        taken = sum(state == "installed" for state in wheels.values())
        print(f"{cell:<24} {taken} of {len(wheels) - 1} wheels, torch {wheels['torch']}")
    for name, words in report["runs"].items():
        print(f"{name:<24} {words}")
    lacks = missing(report)
    print("missing:", *(lacks or ["nothing"]), sep="\n  ")
    return int(any("failed" in line or "refused" in line or ": audit: " in line for line in lacks))


if __name__ == "__main__":
    sys.exit(main())
