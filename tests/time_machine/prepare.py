"""What entries need to call a part of a package on a CPU, where the whole package needs a GPU or other packages."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import torch
import triton


def bare(*names: str) -> None:
    """Make packages importable without running their ``__init__.py``, outer ones first."""
    for name in names:
        if name in sys.modules:
            continue
        outer, _, inner = name.rpartition(".")
        parent = sys.modules.get(outer)
        spec = importlib.machinery.PathFinder.find_spec(name, parent.__path__ if parent else None)
        assert spec is not None, f"there is no package {name}"
        module: Any = types.ModuleType(name)
        module.__path__ = list(spec.submodule_search_locations or [])
        module.__version__ = "0"
        sys.modules[name] = module
        if parent:
            setattr(parent, inner, module)


def absent(*names: str) -> None:
    """Stand in for packages that are imported and not called."""
    for name in names:
        sys.modules.setdefault(name, MagicMock())


def fla(*names: str) -> None:
    """Flash linear attention without einops, where a CPU is a device without a context.

    Args:
        names: of packages whose ``__init__.py`` is not run, outer ones first.
    """
    if "fla" in sys.modules:
        return
    absent("einops")
    bare("fla", *names)
    torch.cpu.device = _no_context  # type: ignore[attr-defined]


def flag_gems(name: str) -> Any:
    """A module of FlagGems' operators without its choice of a device.

    Kernels have one configuration, their launches no cache, and the module a PyTorch of its own, in which a CPU is a
    device with a context: nothing is replaced in the one that all see.

    Args:
        name: of the module in ``flag_gems.ops``.
    """
    full_name = f"flag_gems.ops.{name}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    bare("flag_gems", "flag_gems.ops", "flag_gems.utils")
    runtime: Any = MagicMock(__path__=[])
    runtime.torch_device_fn.device = _no_context
    runtime.get_tuned_config = lambda _: [triton.Config({"BLOCK_M": 4, "BLOCK_N": 16})]
    modules: dict[str, Any] = sys.modules  # type: ignore[assignment]
    modules["flag_gems.runtime"] = modules["flag_gems"].runtime = runtime
    modules["flag_gems.utils"].libentry = lambda: lambda kernel: kernel
    module: Any = importlib.import_module(full_name)
    module.torch = types.ModuleType("torch")
    module.torch.__dict__.update({**vars(torch), "cuda": types.SimpleNamespace(device=_no_context)})
    return module


def _no_context(_: Any) -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


def small(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for tensors of up to 1,500 elements: Triton's interpreter takes seconds for more.

    Raises:
        ValueError: a tensor is larger.
    """

    @functools.wraps(function)
    def run(*tensors: torch.Tensor) -> Any:
        if any(x.numel() > 1500 for x in tensors):
            raise ValueError("too large for Triton's interpreter")
        return function(*tensors)

    return run
