"""The operators of operators.py with their kernels in C++, built here: the same declarations, samples and checks."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace

import torch
from opwheel.build.toolchain import SDK_INCLUDE, find_cxx, find_torch, target_version_macro
from opwheel.dispatch import register
from opwheel.registry.policy import Policy

from . import operators

NAMESPACE = "waves_cpp"
SOURCES = Path(__file__).parent / "cpp"
FLAGS = [
    "-std=c++20",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    target_version_macro("2.10"),
]


def compile_args(*arguments: object) -> list[str]:
    """A call of the C++ compiler as opwheel.build makes it."""
    torch_files = find_torch()
    includes = [f"-I{SDK_INCLUDE}", "-isystem", str(torch_files.include)]
    return [*find_cxx(), *FLAGS, *includes, *map(str, arguments)]


def build(folder: Path) -> None:
    """Compile and open the schema library and the kernels."""
    lib = find_torch().lib
    for name in ("schema", "kernels"):
        output = folder / f"lib{NAMESPACE}_{name}.so"
        link = ["-shared", SOURCES / f"{name}.cpp", "-o", output, f"-L{lib}", "-ltorch", "-ltorch_cpu", "-lc10"]
        subprocess.run(compile_args(*link), check=True)
        ctypes.CDLL(str(output))


def open_library(folder: Path):
    """The overloads, with everything that follows from the declarations."""
    build(folder)
    random = {"noisy"}  # a Generator cannot reach a C++ kernel before torch 2.13's stable ABI
    chosen = [operator for operator in operators.OPERATORS if operator.name not in random]
    schemas = tuple(schema for schema in operators.KERNELS if schema.partition("(")[0] not in random)
    description = SimpleNamespace(
        namespace=NAMESPACE,
        schemas=schemas,
        policy=Policy(),
        load_pending=lambda: False,
        no_kernel_error=lambda *_: RuntimeError("no kernel"),
    )
    defined = {name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names() if NAMESPACE in name}
    assert defined == {operator.name for operator in chosen}
    return register(description, chosen)
