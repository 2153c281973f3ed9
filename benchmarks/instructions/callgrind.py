"""Runs the watched program under callgrind and reads what it dumped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from opwheel._build import toolchain
from torch.utils.benchmark.utils import valgrind_wrapper

from .watched import CALLS

Counts = dict[str, dict[str, int]]
"""Instructions of one call, by instruction set and statement."""

ROOT = Path(__file__).resolve().parents[2]
# valgrind knows no AVX-512. Calls take the same way with every instruction set.
PARTS = ("avx2=", "baseline=kernel/")
_NAME = re.compile(r"^desc: Trigger: Client Request: (\S+) (.+)$", re.MULTILINE)
_TOTAL = re.compile(r"^summary: (\d+)$", re.MULTILINE)


class CountingError(Exception):
    """The counts cannot be had here."""


def count(parts: Iterable[str] = PARTS, python: str | Path = sys.executable, **variables: str) -> Counts:
    """Count every statement; takes about half a minute, most of it for the import of PyTorch.

    Args:
        parts: instruction sets and what the names of their statements begin with, as ``watched`` takes them.
        python: the interpreter whose PyTorch and libraries are counted.
        variables: environment variables that it needs.
    """
    if shutil.which("valgrind") is None:
        raise CountingError("there is no valgrind (Debian: apt-get install valgrind)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/dump.%p"]
        watched = [str(python), "-m", f"{__package__}.watched", str(_build_requests(folder)), *parts]
        # What else decides how many instructions there are: threads, and where hashed things come to lie.
        path = os.pathsep.join(filter(None, (str(ROOT), variables.get("PYTHONPATH"))))
        decided = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": path}
        environment = {**os.environ, **variables, **decided}
        done = subprocess.run([*command, *watched], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CountingError(f"{' '.join(watched[:3])} failed under valgrind:\n{done.stderr[-2000:]}")
        return _read(folder.glob("dump.*.*"))


def _build_requests(folder: Path) -> Path:
    library = folder / "requests.so"
    include = Path(valgrind_wrapper.__file__).parent  # PyTorch brings valgrind's headers along
    command = [*toolchain.find_cxx(), "-O1", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*command, str(Path(__file__).with_name("requests.cpp")), "-o", str(library)], check=True)
    return library


def _read(dumps: Iterable[Path]) -> Counts:
    totals: dict[str, dict[str, list[int]]] = {}
    for dump in dumps:
        text = dump.read_text()
        if (named := _NAME.search(text)) and (total := _TOTAL.search(text)):
            totals.setdefault(named[1], {}).setdefault(named[2], []).append(int(total[1]))
    return {
        instruction_set: {
            name: round((median(counted) - median(named[f"empty {name}"])) / CALLS)
            for name, counted in sorted(named.items())
            if not name.startswith("empty ")
        }
        for instruction_set, named in sorted(totals.items())
    }
