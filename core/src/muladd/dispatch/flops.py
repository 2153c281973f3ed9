"""torch.utils.flop_counter: what a call counts for."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .overload import Overload

_COUNTER = "torch.utils.flop_counter"


def register(overloads: Iterable[Overload]) -> None:
    """Register formulas as soon as somebody counts: most programs do not, and the counter takes long to import."""
    by_name = {overload.name.partition(".")[0]: overload for overload in overloads}

    def register_formulas() -> None:
        from torch.utils.flop_counter import register_flop_formula

        for name, overload in by_name.items():
            packet = getattr(getattr(torch.ops, overload.namespace), name)
            register_flop_formula(packet, get_raw=True)(_formula(overload))

    if _COUNTER in sys.modules:
        register_formulas()
    else:
        sys.meta_path.insert(0, _AfterImport(_COUNTER, register_formulas))


def _formula(overload: Overload) -> Callable[..., int]:
    def formula(*_args: Any, out_val: Tensor | tuple[Tensor, ...], **_kwargs: Any) -> int:
        results = out_val if isinstance(out_val, tuple) else (out_val,)
        return sum(result.numel() for result in results) * overload.operator.flops

    return formula


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds one module as Python would, and runs an action when it has been imported."""

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self._module = module
        self._action = action

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self._action()

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
