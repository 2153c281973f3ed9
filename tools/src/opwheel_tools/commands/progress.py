"""What a long measurement shows meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def measure(run: Callable[[Any], None], cases: list[Any]) -> None:
    """Run all cases, which have names, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(task, description=case.name)
            run(case)
            progress.advance(task)
