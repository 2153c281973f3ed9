"""An audit from end to end: list, collect calls, check them, reproduce what was found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .allowances import Allowance, apply
from .cells import Workers
from .confirmation import confirm
from .outcomes import Cell, Result
from .report import Audit

# The names in checks.CHECKS, which imports PyTorch; a test compares them. "call" is the first.
CHECKS = (
    *("call", "fake", "writes", "aliases", "strides", "expanded", "offset", "bounds", "empty", "repeatable", "threads"),
    *("uninitialized", "gradients", "gradients by dtype", "backward", "second derivatives", "forward mode"),
    *("torch.func.jvp", "torch.func.grad", "vmap", "autocast", "compile", "export"),
)


def audit(
    target: str,
    *,
    imports: Sequence[str] = (),
    samples: str = "",
    recorded: Path | None = None,
    only: Sequence[str] = (),
    checks: Sequence[str] = CHECKS,
    seconds: float = 60.0,
    allowed: Sequence[Allowance] = (),
    progress: Callable[[str], Any] = lambda _: None,
) -> Audit:
    """Audit an operator library.

    Args:
        target: an installed module, the path of a shared library, or a namespace of operators.
        imports: modules to import first.
        samples: ``"module:function"`` that gives the calls of an operator, or empty.
        recorded: a file of recorded calls.
        only: operators, ``"namespace::name.overload"`` or without the namespace; all where empty.
        checks: names in :data:`CHECKS`.
        seconds: the time limit for each cell.
        allowed: findings that are none.
        progress: is called with a line as the work goes on.

    Raises:
        WorkerError: the library cannot be loaded, registers nothing, or lacks an operator of ``only`` or ``allowed``;
            or the calls cannot be had.
    """
    with tempfile.TemporaryDirectory() as folder:
        workers = Workers(target, list(imports), Path(folder) / "calls", seconds)
        file = "" if recorded is None else str(recorded.resolve())
        known = workers.prepare(samples, file, only, [one.operator for one in allowed])
        wanted = [check for check in CHECKS if check == "call" or check in checks]
        cells = [
            Cell(operator, i, check, origin) for i, (operator, origin) in enumerate(known["calls"]) for check in wanted
        ]
        progress(f"{target}: {len(known['operators'])} operators, {len(known['calls'])} calls, {len(wanted)} checks")
        results: list[Result] = []

        def keep(found: Result) -> None:
            (result,) = apply([found], allowed)
            results.append(result)
            progress(f"{result.cell.operator}: {result.cell.check}: {result.outcome.value}")

        workers.check(cells, keep)
        results = confirm(results, workers)
    order = {cell: i for i, cell in enumerate(cells)}
    results.sort(key=lambda result: order[result.cell])
    return Audit(
        target, known["version"], known["torch"], known["operators"], known["binaries"], results, tuple(allowed)
    )


def namespaces_of(target: str, imports: Sequence[str] = ()) -> set[str]:
    """The namespaces of the operators that a target registers.

    Raises:
        WorkerError: the library cannot be loaded, or registers nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        known = Workers(target, list(imports), Path(folder) / "calls", 1.0).prepare()
    return {operator["operator"].partition("::")[0] for operator in known["operators"]}
