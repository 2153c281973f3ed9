"""Fused multiply-add operators for PyTorch, with kernels from separately installed backends.

>>> import muladd, torch
>>> muladd.muladd(torch.ones(3), torch.ones(3), 2.0)
tensor([3., 3., 3.])
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch  # noqa: F401  # before any library is opened: backends find libtorch in the process

from . import dispatch, operators, registry
from ._version import __version__
from .operators import add, fma, mul, muladd, muladd_, scale

_here = Path(__file__).parent

if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] == __name__:  # python -m muladd, as the script would
    import_module("opwheel_cli").prepare()

library = registry.OperatorLibrary(
    "muladd",
    operators=[operator.name for operator in operators.DECLARATIONS],
    schema_library=_here / "libmuladd_schema.so",
    entry_point_group="muladd.backends",
    plugins_file=_here / "plugins.toml",
    distribution="muladd-core",
)

# 1. The operators exist, with the schemas of the catalogue.
library.load_schemas()

# 2. They have shapes, derivatives, batching rules, autocast rules, and an answer where no backend has a kernel.
overloads = dispatch.register(library, operators.DECLARATIONS)

# 3. Backends bring the kernels: discover, apply the policy, check, probe, open, verify.
library.load_backends()

backends = library.backends
require = library.require
load = library.load


def get_include() -> str:
    """The folder of the C++ SDK's headers, for ``-I``."""
    return str(_here / "include")


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The operators in terms of ATen, for ``ExportedProgram.run_decompositions(muladd.decompositions())``."""
    return dispatch.decomposition_table(overloads.values())


def __getattr__(name: str) -> ModuleType:
    # What most programs do not use, and what takes long to import.
    if name in ("aotinductor", "distributed", "testing"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "__version__",
    "add",
    "backends",
    "decompositions",
    "fma",
    "get_include",
    "library",
    "load",
    "mul",
    "muladd",
    "muladd_",
    "overloads",
    "registry",
    "require",
    "scale",
]
