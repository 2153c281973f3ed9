"""Checks the C++ sources with clang-tidy, with the flags that they are built with: .clang-tidy has the checks.

    python release/tidy.py                              everything that a C++ compiler builds; code for devices is not
    python release/tidy.py --fix --only memory          corrected where clang-tidy can, of the sources named like that

Each setup.py says what is compiled how. Headers are those of this folder, not the installed ones.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from distutils.core import run_setup
from pathlib import Path

from opwheel._build import NativeLibrary
from opwheel._build.ninja_file import CXX_FLAGS
from opwheel._build.toolchain import find_torch, stable_abi_macros

ROOT = Path(__file__).parents[1]
TRANSFORMER = "libraries/transformer"
PROJECTS = ("framework", "core", "backends/cpu", f"{TRANSFORMER}/core", f"{TRANSFORMER}/backends/cpu")
SDK = ROOT / "tools/src/opwheel_tools/include"
LOADER = "opwheel/load.h"  # for programs, which may be C++17
INCLUDES = (SDK, ROOT / "core/src/muladd/include", ROOT / TRANSFORMER / "core/src/transformer_ops/include")
# GCC's options that clang has not: for a warning and against one of its own.
CLANG_FLAGS = ("-Wno-unknown-warning-option", "-Wno-ignored-optimization-argument")


def sources() -> dict[Path, list[str]]:
    """What is compiled, and with which flags."""
    found: dict[Path, list[str]] = {}
    for project in PROJECTS:
        os.chdir(ROOT / project)  # setup.py names files from there
        for library in run_setup("setup.py", stop_after="init").ext_modules:
            found |= {Path(source).resolve(): flags_of(library, source) for source in library.sources}
    return found


def flags_of(library: NativeLibrary, source: str) -> list[str]:
    """As opwheel's build has them, with the headers of this folder."""
    return [
        *flags(library.torch_target),
        *(f"-isystem{Path(folder).resolve()}" for folder in library.include_dirs),
        *library.extra_compile_args,
        *library.source_args.get(source, ()),
    ]


def flags(torch_target: str | None) -> list[str]:
    """Of every source."""
    headers = [*(f"-I{folder}" for folder in INCLUDES), f"-isystem{find_torch().include}"]
    return [*CXX_FLAGS, *stable_abi_macros(torch_target), *headers, *CLANG_FLAGS]


def headers(folder: Path) -> dict[Path, list[str]]:
    """Sources with the headers of the SDK, not each of which is included by what is built here, and their flags."""
    names = [str(header.relative_to(SDK)) for header in sorted(SDK.rglob("*.h"))]
    others = [name for name in names if name != LOADER and not re.search(r"/(cuda|xpu)/|\.inc\.h$", name)]
    sdk, loader = folder / "sdk.cpp", folder / "loader.cpp"
    sdk.write_text("".join(["#define OPWHEEL_ISA checked\n", *map('#include "{}"\n'.format, others)]))
    loader.write_text(f'#include "{LOADER}"\n')
    return {sdk: flags("2.10"), loader: [*flags("2.10"), "-std=c++17"]}


def check(source: Path, source_flags: list[str], options: list[str]) -> str:
    """What clang-tidy says of it."""
    command = [
        str(Path(sys.executable).parent / "clang-tidy"),
        "--quiet",
        f"--config-file={ROOT}/.clang-tidy",
        *options,
        str(source),
        "--",
        *source_flags,
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return run.stdout if run.stdout or not run.returncode else run.stderr


def main() -> str | None:
    """Print findings, each once; how many there are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="sources whose path has this in it")
    parser.add_argument("--fix", action="store_true", help="correct what clang-tidy can, one source after the other")
    chosen = parser.parse_args()
    options = ["--fix"] if chosen.fix else []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1 if chosen.fix else os.cpu_count()) as pool:
        taken = {**sources(), **headers(Path(folder))}
        running = [pool.submit(check, path, its, options) for path, its in taken.items() if chosen.only in str(path)]
        texts = [one.result() for one in running]
    # A header's findings are those of every source that includes it.
    starts = r"^(?=\S+:\d+:\d+: (?:warning|error))"
    findings = dict.fromkeys(one for text in texts for one in re.split(starts, text, flags=re.MULTILINE) if one)
    print("".join(findings), end="")
    return f"{len(findings)} findings" if findings else None


if __name__ == "__main__":
    sys.exit(main())
