"""``bench``: how fast the operators are here, against what else computes the same."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from opwheel.registry import State

if TYPE_CHECKING:
    from opwheel import Library

    from ..bench.results import Results
    from ..bench.sampling import Precision
    from ..bench.suite import Suite

_PIPE_WIDTH = 160  # columns where the output goes into a file


def bench(
    context: typer.Context,
    device: Annotated[str, typer.Option(help="A device with a loaded backend.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="A few small cases: a quick look, not a measurement.")] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Many widths, rows, dtypes and layouts, a quick sample each, on a CPU.")
    ] = False,
    backends: Annotated[
        list[str] | None,
        typer.Option(
            "--compiled-by",
            help="With --sweep: also the baseline as this backend of torch.compile makes it, at a few points; may be "
            "repeated.",
        ),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Measure only this group; may be repeated.")] = None,
    skip: Annotated[list[str] | None, typer.Option(help="Leave out this baseline; may be repeated.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results here.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw the results into this file.")] = None,
    compare_file: Annotated[
        Path | None, typer.Option("--compare", help="Results of an earlier run; slower cases are findings.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="With --compare: the share by which a case may be slower.", min=0)
    ] = 0.1,
    label: Annotated[str | None, typer.Option(help="Stored in the results, for example the measured commit.")] = None,
) -> None:
    """Measure the operators against their alternatives."""
    # Not at the top, as in the functions below: nothing else needs it, and it takes long to import.
    import torch
    from rich.console import Console

    from ..bench import comparison, sampling, tables
    from ..bench.machine import describe_machine
    from ..bench.results import Results
    from . import progress

    # Everything that can be wrong is found before minutes are spent on measuring.
    library: Library = context.obj.open()
    if sweep:
        from .sweep import sweep as run_sweep

        if device != "cpu" or skip or compare_file is not None:
            raise typer.BadParameter("goes with none of --device, --skip and --compare", param_hint="--sweep")
        _require_loaded(library, device)
        for option, file in (("--json", json_file), ("--plot", plot_file)):
            _require_writable(option, file)
        _require_matplotlib(plot_file)
        files = {"json_file": json_file, "plot_file": plot_file}
        run_sweep(library, only or [], backends or [], quick=quick, label=label, **files)
        return
    if backends:
        raise typer.BadParameter("goes with --sweep", param_hint="--compiled-by")
    suite = _suite(library)
    _require_loaded(library, device)
    run = _SuiteRun(suite, device, quick, only, skip) if suite else _SampleRun(library, device, quick, only, skip)
    for option, file in (("--json", json_file), ("--plot", plot_file)):
        _require_writable(option, file)
    _require_matplotlib(plot_file)
    old = _load(compare_file)
    if old is not None and not {case.name for case in run.cases} & {row.name for row in old.rows}:
        raise typer.BadParameter(f"{compare_file} has no case in common with this run; measure the same groups")

    settings: dict[str, object] = {"device": device, "quick": quick, "threads": torch.get_num_threads()}
    settings[library.namespace] = library.version
    settings["huge_pages"] = library.policy.huge_pages
    settings["result_cache"] = library.policy.result_cache
    if label is not None:
        settings["label"] = label
    results = Results(describe_machine(device), settings)
    precision = sampling.QUICK if quick else sampling.FULL
    try:
        with run.measure(precision, results) as measure:
            progress.measure(measure, run.cases)
    except KeyboardInterrupt:
        results.notes.append(f"interrupted after {len(results.rows)} of {len(run.cases)} cases")

    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    tables.show(results, run.shown, console)
    if json_file is not None:
        results.save(json_file)
    if plot_file is not None:
        run.draw(results, plot_file)
    fine = not results.findings
    if old is not None:
        fine &= comparison.show(old, results, run.shown, tolerance, console)
    raise typer.Exit(0 if fine else 1)


def _suite(library: Library) -> Suite | None:
    """What the library says is to be measured; None where its operators' samples are."""
    from ..opinfo.lookup import MODULE, OpInfosError, module_of, op_info_of

    name = f"{MODULE}.benchmarks"
    try:
        module = module_of(library.package, name)
        if module is not None:
            suite: Suite = module.SUITE
            return suite
        has_samples = any(op_info_of(overload).samples is not None for overload in library.overloads.values())
    except OpInfosError as error:
        raise typer.BadParameter(str(error)) from error
    if not has_samples:
        raise typer.BadParameter(
            f"{library.package} has nothing to measure: no operator has samples in {library.package}.{MODULE}, and "
            f"there is no module {library.package}.{name} with a Suite called SUITE"
        )
    return None


class _SuiteRun:
    """The cases of a library's own suite."""

    def __init__(self, suite: Suite, device: str, quick: bool, only: list[str] | None, skip: list[str] | None) -> None:
        from ..bench.machine import available_memory
        from ..bench.selection import baseline_names, select_cases

        _require_known("--skip", "baseline", skip or [], baseline_names(suite))
        _require_known("--only", "group", only or [], suite.groups)
        memory = available_memory(device)
        self.suite, self.device, self.skip, self.shown = suite, device, skip or [], suite.shown
        self.cases: list[Any] = select_cases(suite, device=device, quick=quick, groups=only or [], memory=memory)

    @contextlib.contextmanager
    def measure(self, precision: Precision, results: Results) -> Iterator[Callable[[Any], None]]:
        """What measures a case."""
        from ..bench.runner import Runner
        from ..bench.selection import select_implementations

        implementations = select_implementations(self.suite, self.device, self.skip)
        with contextlib.closing(Runner(self.suite, self.device, implementations, precision, results)) as runner:
            yield runner.run

    def draw(self, results: Results, path: Path) -> None:
        """Bandwidth and time against size."""
        from ..bench import plot

        plot.save(results, self.suite, path)


class _SampleRun:
    """The samples of a library's operators."""

    def __init__(
        self, library: Library, device: str, quick: bool, only: list[str] | None, skip: list[str] | None
    ) -> None:
        from ..bench import from_samples
        from ..bench.suite import Shown
        from ..opinfo.lookup import op_info_of

        overloads = list(library.overloads.values())
        named = dict.fromkeys(name for overload in overloads for name in op_info_of(overload).baselines)
        baselines = [from_samples.REFERENCE, from_samples.COMPILED, *named, from_samples.FUNCTIONAL, from_samples.TRIAD]
        _require_known("--skip", "baseline", skip or [], baselines)
        _require_known("--only", "operator", only or [], [overload.operator.name for overload in overloads])
        self.package, self.device, self.quick, self.skip = library.package, device, quick, skip or []
        self.shown = Shown(from_samples.OURS, limits=frozenset({from_samples.TRIAD}))
        self.cases: list[Any] = list(from_samples.cases(overloads, device, only or [], quick=quick))

    @contextlib.contextmanager
    def measure(self, precision: Precision, results: Results) -> Iterator[Callable[[Any], None]]:
        """What measures a case."""
        from ..bench import from_samples
        from ..bench.case_process import CaseProcesses

        # A device's allocator gives every case the same memory, and its context takes long to start.
        run = from_samples.run if self.quick or self.device != "cpu" else CaseProcesses(self.package).run
        yield lambda case: run(case, self.device, precision, results, self.skip)

    def draw(self, results: Results, path: Path) -> None:
        """How many times faster than its baselines each operator is."""
        from ..bench import samples_plot

        samples_plot.save(results, path)


def _require_loaded(library: Library, device: str) -> None:
    loaded = {status.device_type for status in library.backends().values() if status.state is State.LOADED}
    if device not in loaded:
        raise typer.BadParameter(
            f"no backend for {device!r} is loaded; loaded are: {', '.join(sorted(loaded)) or 'none'}. "
            f"For the reason, run: {library.namespace} doctor",
            param_hint="--device",
        )


def _require_known(option: str, kind: str, given: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise typer.BadParameter(
            f"no {kind} {unknown[0]!r}; {kind}s are: {', '.join(dict.fromkeys(known))}", param_hint=option
        )


def _require_writable(option: str, file: Path | None) -> None:
    if file is not None and not (file.parent.is_dir() and os.access(file if file.exists() else file.parent, os.W_OK)):
        raise typer.BadParameter(f"{file} cannot be written", param_hint=option)


def _require_matplotlib(plot_file: Path | None) -> None:
    if plot_file is None:
        return
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        text = "the picture needs one more package: pip install 'opwheel-tools[bench]'"
        raise typer.BadParameter(text, param_hint="--plot") from error
    formats = FigureCanvasBase.get_supported_filetypes()
    if plot_file.suffix.removeprefix(".") not in formats:
        raise typer.BadParameter(f"{plot_file} must end in one of: {', '.join(formats)}", param_hint="--plot")


def _load(compare_file: Path | None) -> Results | None:
    if compare_file is None:
        return None
    from ..bench.results import ResultsFileError, load

    try:
        return load(compare_file)
    except ResultsFileError as error:
        raise typer.BadParameter(str(error), param_hint="--compare") from error
