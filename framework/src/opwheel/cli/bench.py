"""``muladd bench``: how fast the operators are here, beside what else computes the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import muladd
from opwheel.bench import comparison, peers, sampling, tables
from opwheel.bench.cases import Case, Group, select
from opwheel.bench.machine import available_memory, describe_machine
from opwheel.bench.results import Results, ResultsFileError, load
from opwheel.bench.runner import Runner
from opwheel.registry import State

_PIPE_WIDTH = 160  # columns where the output goes into a file


def bench(
    device: Annotated[str, typer.Option(help="A device with a loaded backend.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="Few and small cases: a look, not a measurement.")] = False,
    only: Annotated[list[Group] | None, typer.Option(help="Measure this group; may be given again.")] = None,
    skip: Annotated[list[str] | None, typer.Option(help="Leave this peer out; may be given again.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results here.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw the results into this file.")] = None,
    compare_file: Annotated[
        Path | None, typer.Option("--compare", help="Results of an earlier run; slower cases are a finding.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="With --compare: a loss up to this share is none.", min=0)] = 0.1,
) -> None:
    """Measure the operators and their alternatives, interleaved."""
    # Everything that can be wrong is found before minutes are spent on measuring.
    _require_loaded(device)
    _require_known(skip or [])
    for option, file in (("--json", json_file), ("--plot", plot_file)):
        _require_writable(option, file)
    _require_matplotlib(plot_file)
    old = _load(compare_file)
    cases = select(device=device, quick=quick, groups=only or [], memory=available_memory(device))
    if old is not None and not {case.name for case in cases} & {row.name for row in old.rows}:
        raise typer.BadParameter(f"{compare_file} has no case in common with this run; measure the same groups")

    settings = {"device": device, "quick": quick, "threads": torch.get_num_threads(), "muladd": muladd.__version__}
    results = Results(describe_machine(device), settings)
    precision = sampling.QUICK if quick else sampling.FULL
    try:
        _measure(Runner(device, peers.select(device, skip or []), precision, results), cases)
    except KeyboardInterrupt:
        results.notes.append(f"interrupted after {len(results.rows)} of {len(cases)} cases")

    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    tables.show(results, console)
    if json_file is not None:
        results.save(json_file)
    if plot_file is not None:
        from opwheel.bench import plot

        plot.save(results, plot_file)
    fine = not results.findings
    if old is not None:
        fine &= comparison.show(comparison.compare(old, results), old, results, tolerance, console)
    raise typer.Exit(0 if fine else 1)


def _measure(runner: Runner, cases: list[Case]) -> None:
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(task, description=case.name)
            runner.run(case)
            progress.advance(task)


def _require_loaded(device: str) -> None:
    loaded = {status.device_type for status in muladd.backends().values() if status.state is State.LOADED}
    if device not in loaded:
        raise typer.BadParameter(
            f"no backend for {device!r} is loaded; loaded are: {', '.join(sorted(loaded)) or 'none'}. "
            "The reason: muladd doctor",
            param_hint="--device",
        )


def _require_known(skip: list[str]) -> None:
    unknown = [name for name in skip if name not in peers.NAMES]
    if unknown:
        raise typer.BadParameter(f"no peer {unknown[0]!r}; peers are: {', '.join(peers.NAMES)}", param_hint="--skip")


def _require_writable(option: str, file: Path | None) -> None:
    if file is not None and not (file.parent.is_dir() and os.access(file if file.exists() else file.parent, os.W_OK)):
        raise typer.BadParameter(f"{file} cannot be written", param_hint=option)


def _require_matplotlib(plot_file: Path | None) -> None:
    if plot_file is None:
        return
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        text = "the picture needs one more package: pip install 'muladd-core[bench]'"
        raise typer.BadParameter(text, param_hint="--plot") from error
    formats = FigureCanvasBase.get_supported_filetypes()
    if plot_file.suffix.removeprefix(".") not in formats:
        raise typer.BadParameter(f"{plot_file} must end in one of: {', '.join(formats)}", param_hint="--plot")


def _load(compare_file: Path | None) -> Results | None:
    if compare_file is None:
        return None
    try:
        return load(compare_file)
    except ResultsFileError as error:
        raise typer.BadParameter(str(error), param_hint="--compare") from error
