"""Makes the first calls of every kernel in another process: one that ends the process must not end the tests.

Run as ``python -m opwheel_tools.testing.crashes LIBRARY DEVICE CHECK,... OPERATOR=DTYPE,...`` it calls the operators'
kernels, one after another, and says before each call what it is.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from opwheel.dispatch import Elementwise
from opwheel.dispatch.derivatives.text import parse
from opwheel.dispatch.overload import Overload
from opwheel.text import how_it_ended

from ..opinfo import Sample
from ..opinfo.lookup import op_info_of
from . import checks, pages
from .checks.agreement import run_kernel
from .samples import LAYOUTS, arguments

_ON, _WITH = "calling ", "with "
_GUARDED = "called with arguments next to inaccessible pages"
_END = "all are called"
# Vectors and what is left of them, several threads, and operands of several shapes.
_SHAPES = ((), (0,), (17,), (70001,), [(2, 3, 4), (4,), (3, 1)], [(3, 300), (300,), (3, 1)])


class Crash(NamedTuple):
    """How a call of a kernel ends the process.

    ``is_out_of_bounds`` says that it does so only where the pages next to its arguments are inaccessible.
    """

    how: str
    is_out_of_bounds: bool


def called_by(overload: Overload) -> list[Overload]:
    """The operators of the library that are called where this one is: in its place, or by formulas of derivatives."""
    found = {overload.name: overload}
    left = [overload]
    while left:
        for other in _called_directly(left.pop()):
            if other.name not in found:
                found[other.name] = other
                left.append(other)
    return list(found.values())[1:]


def _called_directly(overload: Overload) -> Iterator[Overload]:
    if overload.training is not None:
        yield overload.training
    for formula in (overload.operator.derivatives or {}).values():
        for call in parse(overload.namespace, formula).calls if isinstance(formula, str) else ():
            if (other := overload.sibling(call.name)) is not None:
                yield other


def crashing(
    library: str, device: str, operators: Mapping[str, Collection[torch.dtype]], called_by: Collection[str]
) -> dict[str, Crash]:
    """Of operators, called in some dtypes each, those whose kernels end the process, and how.

    Args:
        library: its package.
        device: of the tensors.
        operators: names of overloads, and the dtypes of their arguments.
        called_by: the checks that will call those with samples; some do so with the samples as they are, and for them
            alone arguments of unusual strides are not tried.
    """
    made = "values" if set(called_by) <= {"values", "errors", "empty"} else "values,layouts"
    made += "".join(f",{check}" for check in ("errors", "empty") if check in called_by)
    found: dict[str, Crash] = {}
    left = list(operators)
    while left:
        called = (f"{name}={','.join(sorted(map(_name, operators[name])))}" for name in left)
        command = [sys.executable, "-m", "opwheel_tools.testing.crashes", library, device, made, *called]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        lines = done.stdout.splitlines()
        begun = [line.removeprefix(_ON) for line in lines if line.startswith(_ON)]
        if _END in lines or not begun:
            return found
        found[begun[-1]] = _crash(done.returncode, lines)
        left = left[left.index(begun[-1]) + 1 :]
    return found


def _crash(code: int, lines: list[str]) -> Crash:
    last = max(i for i, line in enumerate(lines) if line.startswith(_ON))
    is_out_of_bounds = _GUARDED in lines[last:]
    call = next((line.removeprefix(_WITH) for line in reversed(lines[last:]) if line.startswith(_WITH)), "")
    guarded = f", {_GUARDED}" if is_out_of_bounds else ""
    return Crash(how_it_ended(code) + guarded + (f": {call}" if call else ""), is_out_of_bounds)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main(library: str, device: str, made: str, *operators: str) -> None:
    """Make the calls; on a CPU also with arguments next to inaccessible pages."""
    overloads = importlib.import_module(library).library.overloads
    where = torch.device(device)
    try:
        torch.empty(0, device=where)
    except Exception:  # the tests' own process has made that device, as a plugin of pytest that simulates one does
        print(_END, flush=True)
        return
    for one in operators:
        name, _, dtypes = one.partition("=")
        print(f"{_ON}{name}", flush=True)
        overload = overloads[name]
        sample_dtypes = [getattr(torch, dtype) for dtype in dtypes.split(",")]
        has_samples = op_info_of(overload).samples is not None
        for dtype in sample_dtypes:
            if has_samples:
                with suppress(Exception):  # the tests will say what is wrong
                    _make_checks(overload, dtype, where, made.split(","))
            for values in _elementwise_calls(overload, dtype, sample_dtypes, where):
                _call(overload, values)
        if where.type == "cpu" and (has_samples or not overload.mutates):
            print(_GUARDED, flush=True)
            for dtype in sample_dtypes:
                with suppress(Exception):
                    for values in pages.next_to_pages(overload, dtype):
                        _call(overload, values)
    print(_END, flush=True)


def _make_checks(overload: Overload, dtype: torch.dtype, device: torch.device, names: list[str]) -> None:
    for index in range(len(checks.declared(overload, dtype, device))):
        samples = checks.Samples(overload, index, dtype, device)
        for name in names:
            print(f"{_WITH}{samples!r} ({name})", flush=True)
            with suppress(Exception):
                checks.CHECKS[name](overload, samples)


def _elementwise_calls(
    overload: Overload, dtype: torch.dtype, others: list[torch.dtype], device: torch.device
) -> Iterator[tuple[Any, ...]]:
    """Values of all arguments of an element-wise operator: layouts, shapes, and beside tensors of other dtypes."""
    if not isinstance(overload.rule, Elementwise):
        return
    made = [
        *(arguments(overload, (2, 3, 4, 5), dtype, device, layouts=(name, "contiguous")) for name in LAYOUTS),
        *(arguments(overload, shapes, dtype, device) for shapes in _shapes(overload)),
    ]
    for other in others:
        first, *rest = arguments(overload, (33,), dtype, device)
        made.append((first, *(value.to(other) if isinstance(value, torch.Tensor) else value for value in rest)))
    for args in made:
        out = {"out": torch.empty(0, dtype=dtype, device=device)} if overload.is_out else {}
        yield overload.bind(args, out)


def _shapes(overload: Overload) -> Iterator[Any]:
    count = len(overload.tensor_arguments)
    for shapes in _SHAPES:
        yield shapes[:count] if isinstance(shapes, list) else shapes


def _call(overload: Overload, values: tuple[Any, ...]) -> None:
    print(f"{_WITH}{overload.name}{Sample(*values)!r}", flush=True)
    with suppress(Exception):
        run_kernel(overload, values)


if __name__ == "__main__":
    main(*sys.argv[1:])
