"""The operators of operators.py with their kernels in C++, built here: the same declarations, samples and checks."""

from __future__ import annotations

import atexit
import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from opwheel._build.toolchain import find_cxx, find_torch, stable_abi_macros
from opwheel.memory.usage import kept_by
from opwheel_tools import get_include

from . import operators, opinfos
from .declared import declare

NAMESPACE = "waves_cpp"
SOURCES = Path(__file__).parent / "cpp"
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]


def compile_args(*arguments: object, torch_target: str = "2.10") -> list[str]:
    """A call of the C++ compiler as opwheel_tools.build makes it."""
    flags = [*FLAGS, *stable_abi_macros(torch_target), f"-I{get_include()}", "-isystem", str(find_torch().include)]
    return [*find_cxx(), *flags, *map(str, arguments), *shlex.split(os.environ.get("CXXFLAGS", ""))]


def build(source: Path, output: Path, torch_target: str = "2.10") -> Path:
    """Compile a library; its path."""
    link = ["-shared", source, "-o", output, f"-L{find_torch().lib}", "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run(compile_args(*link, torch_target=torch_target), check=True)
    return output


@cache
def open_types() -> Path:
    """The library of types.cpp, opened. Once in a process: nobody can define a namespace twice."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = build(SOURCES / "types.cpp", Path(folder, "libtypes.so"), torch_target="2.13")
    ctypes.CDLL(str(path))
    return path


def check_nothing_stays_allocated(operator, *arguments: object) -> None:
    """After many calls of an operator."""
    calls, least_block = 200, 16  # bytes; glibc hands out no fewer

    def work():
        for _ in range(calls):
            operator(*arguments)

    assert kept_by(work, least_block * calls - 1) < least_block * calls


def open_library(folder: Path):
    """The overloads, with everything that follows from the declarations."""
    for name in ("schema", "kernels"):
        ctypes.CDLL(str(build(SOURCES / f"{name}.cpp", folder / f"lib{NAMESPACE}_{name}.so")))
    return register_operators()


def register_operators():
    """Declare the operators of the schema library that is open."""
    random = {"noisy"}  # test_cpp_types.py has one: a library for torch 2.10 cannot
    chosen = [operator for operator in operators.OPERATORS if operator.name not in random]
    schemas = tuple(schema for schema in operators.KERNELS if schema.partition("(")[0] not in random)
    defined = {name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names() if f"{NAMESPACE}::" in name}
    assert defined == {operator.name for operator in chosen}
    infos = {operator.name: opinfos.OP_INFOS[operator.name] for operator in chosen}
    return declare(NAMESPACE, schemas, chosen, infos)
