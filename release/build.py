"""Builds source distributions, and from those the wheels: `python -m release.build --out dist [NAME ...]`.

A project whose build requirements no given interpreter has is skipped, unless it is named; with --platform, so is one
that cannot be built for another processor here. Files come out the same, byte for byte, from any checkout at any time
with the same tools (docs/releasing.md).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from build import BuildBackendException, BuildException, ProjectBuilder
from opwheel._build.toolchain import ToolchainError
from opwheel_tools.build.cuda import find_toolkit

from . import cross
from .archives import normalize_sdist, unpack_sdist
from .platforms import tag_platform
from .projects import ROOT, Project, projects, unmet_requirements
from .torches import RELEASES, cache_folder, torches
from .variants import DESCRIPTION, read_description, write_variants

# Tests of the project itself, not those that a template of it writes.
_NOT_AT_THE_TOP = ("build", "tests")
_NOT_SOURCE = shutil.ignore_patterns("*.egg-info", "__pycache__", "*.so")

VARIANTS = "variants"  # in the folder of the files

CUDA = ("13", "12,13")  # what a release is built for, and what it can be built for

BUILD_FOLDER = Path("/tmp/muladd-release")  # noqa: S108  # a random name would not be the same on every machine


class Built(NamedTuple):
    """One line of the table."""

    name: str
    wheel: Path | None = None
    seconds: float = 0.0
    skipped: str = ""


def build(project: Project, python: str, out: Path) -> Path:
    """The source distribution and the wheel that is built from it, both in ``out``."""
    with _build_folder() as folder:
        source = folder / "source"
        shutil.copytree(project.folder, source, ignore=_ignored_in(project.folder))  # links become files
        sdist = Path(_builder(source, python).build("sdist", folder / "sdist"))
        normalize_sdist(sdist, epoch())
        unpacked = unpack_sdist(sdist, folder / "unpacked")
        wheel = Path(_builder(unpacked, python).build("wheel", folder / "wheel"))
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(sdist, out)
        return tag_platform(wheel, out)


def _ignored_in(top: Path) -> Callable[[str, list[str]], set[str]]:
    def ignored(folder: str, names: list[str]) -> set[str]:
        return _NOT_SOURCE(folder, names) | (set(_NOT_AT_THE_TOP) if Path(folder) == top else set())

    return ignored


@contextlib.contextmanager
def _build_folder() -> Iterator[Path]:
    """The same path on every machine: nvcc hashes it into the names of kernels. One build at a time has it."""
    BUILD_FOLDER.mkdir(mode=0o700, exist_ok=True)
    found = BUILD_FOLDER.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise SystemExit(f"release: {BUILD_FOLDER} belongs to another user or is not a folder; remove it first")
    with (BUILD_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = BUILD_FOLDER / "build"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        shutil.rmtree(folder)


def epoch() -> int:
    """The time that files in archives get: ``SOURCE_DATE_EPOCH``, or that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if not given:
        command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        given = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(given)


def _builder(folder: Path, python: str) -> ProjectBuilder:
    return ProjectBuilder(folder, python_executable=python, runner=_run)


def _run(command: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
    """Show what a build prints only if it fails."""
    environment = {**os.environ, **(extra_environ or {})}
    result = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode != 0:
        print(result.stdout, file=sys.stderr)
        result.check_returncode()


def build_or_skip(project: Project, pythons: list[str], out: Path, *, is_named: bool) -> Built:
    """Build with the first interpreter that has all requirements; say what is missing if none has."""
    unmet = {python: unmet_requirements(project, python) for python in pythons}
    python = min(pythons, key=lambda one: len(unmet[one]))
    if unmet[python] and not is_named:
        return Built(project.name, skipped=f"not installed here: {', '.join(unmet[python])}")
    start = time.perf_counter()
    wheel = build(project, python, out)
    return Built(project.name, wheel, time.perf_counter() - start)


def variants_of(project: Project, wheel: Path, out: Path) -> list[Built]:
    """The variants of the project's wheel, in a folder of their own: indexes that do not know the draft refuse them."""
    description = project.folder / DESCRIPTION
    if not description.exists():
        return []
    written = write_variants(wheel, read_description(description), out / VARIANTS)
    return [Built(f"{project.name}-{label}", path) for label, path in written.items()]


def table(rows: list[Built]) -> str:
    """What was built and what was skipped."""
    lines = [f"{'project':<18}{'size':>10}{'time':>9}  wheel"]
    for row in rows:
        if row.wheel is None:
            lines.append(f"{row.name:<18}{'':>10}{'':>9}  skipped: {row.skipped}")
        else:
            size = f"{row.wheel.stat().st_size / 1e3:.0f} kB"
            lines.append(f"{row.name:<18}{size:>10}{row.seconds:>7.0f} s  {row.wheel.name}")
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m release.build", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="projects to build; all that can be if left out")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("dist"),
        help="folder for the files; wheels and source distributions in it are removed first",
    )
    parser.add_argument("--python", action="append", default=[], help="another interpreter to build with")
    parser.add_argument(
        "--torch",
        action="append",
        default=[],
        metavar="RELEASE",
        help="a release of PyTorch to build native Autograd for, or 'all'; the installed one if left out",
    )
    parser.add_argument(
        "--cuda",
        choices=CUDA,
        default=CUDA[0],
        help="releases of CUDA that the wheels with its kernels are for; 12,13 takes an nvcc 12 from CUDA_HOME "
        "(release/cuda12.py makes one); %(default)s if left out",
    )
    parser.add_argument("--platform", choices=cross.TARGETS, help="another processor; this one if left out")
    options = parser.parse_args()
    known = projects()
    unknown = set(options.names) - {project.name for project in known}
    if unknown:
        parser.error(f"no project {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in known)}")
    if options.cuda != CUDA[0] and options.platform:
        problem = f"a build for {options.platform} takes NVIDIA's runtime of CUDA 13 alone"
        parser.error(f"--cuda {options.cuda} is not for --platform: {problem}; leave one of them out")
    os.umask(0o022)  # modes of files are part of an archive
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch())
    if options.cuda != CUDA[0]:
        os.environ["OPWHEEL_CUDA"] = min(options.cuda.split(","))
        try:
            find_toolkit(os.environ["OPWHEEL_CUDA"])
        except ToolchainError as error:
            raise SystemExit(f"release: {error}") from None
    releases = RELEASES if options.torch == ["all"] else options.torch
    skipped = {}
    if options.platform:
        os.environ.update(cross.variables(options.platform, releases, cache_folder()))
        skipped = cross.TARGETS[options.platform].skipped
    elif releases:
        os.environ["OPWHEEL_TORCHES"] = torches(releases, cache_folder())  # framework/setup.py reads it
    for old in (*options.out.glob("*.whl"), *options.out.glob("*.tar.gz"), *options.out.glob(f"{VARIANTS}/*")):
        old.unlink()
    # Absolute, for builds run in a folder of their own, and not resolved: a link to it is what makes an environment.
    pythons = [sys.executable, *(str(Path(python).absolute()) for python in options.python if Path(python).exists())]
    rows = []
    for project in known:
        if not options.names or project.name in options.names:
            try:
                if project.name in skipped:
                    row = Built(project.name, skipped=skipped[project.name])
                else:
                    row = build_or_skip(project, pythons, options.out, is_named=bool(options.names))
                rows += [row, *(variants_of(project, row.wheel, options.out) if row.wheel else ())]
            except (BuildException, BuildBackendException) as error:
                print(f"release: {project.name} cannot be built: {error}", file=sys.stderr)
                return 1
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
