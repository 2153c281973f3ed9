"""``bench --sweep``: where operators are slower than their baselines."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from opwheel import Library

_MOST_SHOWN = 40


def sweep(
    library: Library,
    only: list[str],
    backends: list[str],
    *,
    quick: bool,
    label: str | None,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Measure the grid, show what is slower, and write what was asked for."""
    import torch
    from rich.console import Console

    from ..bench import sweep as grid
    from ..bench import sweep_plot
    from ..bench.machine import describe_machine
    from ..bench.sweep_results import SLOWER, SweepResults
    from .progress import measure

    overloads = list(library.overloads.values())
    known = dict.fromkeys(point.overload.operator.name for point in grid.points(overloads, quick=True))
    if not known:
        problem = f"{library.package} declares nothing to sweep: no OpInfo has the field swept"
        raise typer.BadParameter(problem, param_hint="--sweep")
    for name in only:
        if name not in known:
            problem = f"no operator {name!r} to sweep; operators are: {', '.join(known)}"
            raise typer.BadParameter(problem, param_hint="--only")
    for backend in backends:
        if not grid.has_backend(backend):
            names = ", ".join(torch.compiler.list_backends())
            problem = (
                f"torch.compile has no backend {backend!r}, and no package of that name is installed; it has {names}"
            )
            raise typer.BadParameter(problem, param_hint="--compiled-by")
    points = list(grid.points(overloads, only, quick=quick))
    settings: dict[str, object] = {"quick": quick, "threads": torch.get_num_threads()}
    settings[library.namespace] = library.version
    if label is not None:
        settings["label"] = label
    results = SweepResults(describe_machine(), settings)
    try:
        measure(lambda point: grid.run(point, results), points)
        for backend in backends:
            run_one = functools.partial(grid.run_compiled, backend=backend, results=results)
            measure(run_one, grid.compiled_points(points, quick=quick))
    except KeyboardInterrupt:
        results.left_out.append(f"interrupted after {len(results.points)} of {len(points)} points")

    console = Console(highlight=False)
    slower = results.slower
    console.print(f"{len(results.points)} points, {len(slower)} below {SLOWER} of the baseline's speed")
    for point in slower[:_MOST_SHOWN]:
        console.print(f"  {point}", markup=False)
    if len(slower) > _MOST_SHOWN:
        console.print(f"  and {len(slower) - _MOST_SHOWN} more")
    for point in results.points:
        for backend, ratio in point.compiled.items():
            console.print(f"  {point}, compiled by {backend}: {ratio:.2f}", markup=False)
    for problem in results.left_out:
        console.print(f"left out: {problem}", markup=False)
    if json_file is not None:
        results.save(json_file)
    if plot_file is not None:
        sweep_plot.save(results, plot_file)
