"""``judge``: any callable, compared with a reference."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer


def judge(
    candidate: Annotated[
        str,
        typer.Argument(
            help="Function, module, autograd.Function: module:name, file.py:name, folder:name of a kernel, ns::name."
        ),
    ],
    reference: Annotated[
        str, typer.Option(help="What it is to compute, in PyTorch; named in the same way. Opwheel operators have one.")
    ] = "",
    inputs: Annotated[
        str,
        typer.Option(
            help="A function that yields tuples of arguments, SampleInputs or one list. Operators bring their own; "
            "else get_inputs beside the reference."
        ),
    ] = "",
    init: Annotated[
        str,
        typer.Option(help="For nn.Modules: a function that gives both classes' arguments; else get_init_inputs there."),
    ] = "",
    invariant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLAIM",
            help="No reference: do bits depend on what they must not? batch:x=0,result=0 or threads; may be repeated.",
        ),
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import this first, beside the package with an operator's namespace; may be repeated.",
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the verdict here.")] = None,
    save: Annotated[Path, typer.Option(help="A folder for the inputs of findings that no text makes.")] = Path(
        "judged"
    ),
    jobs: Annotated[int, typer.Option(help="How many trials run side by side.", min=1)] = 1,
    timeout: Annotated[float, typer.Option(help="Seconds for each trial.", min=1)] = 30.0,
    scripts: Annotated[bool, typer.Option(help="Look for a script that shows each finding again.")] = True,
) -> None:
    """Say whether a kernel is right.

    Compares it with a reference in float64, on calls around those that are given: other shapes, numbers, dtypes,
    strides; forward, backward, and every other way to call it. No tolerance is asked for: it may be as far off as
    PyTorch's own evaluation of the reference, times 8. Exit codes: 0 right, 1 wrong, 2 wrong usage, 130 stopped before
    anything was found.
    """

    def progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    progress(f"judging {candidate}")  # before PyTorch is imported
    from ..judge import UsageError
    from ..judge import judge as run

    try:
        if invariant:
            if reference:
                raise UsageError("with --invariant there is no reference; leave one of the two out")
            _judge_invariance(candidate, invariant, inputs, init, imports or [], timeout, progress, json_file)
        verdict = run(
            candidate,
            reference=reference,
            inputs=inputs,
            init=init,
            imports=imports or [],
            seconds=timeout,
            jobs=jobs,
            save=save,
            scripts=scripts,
            progress=progress,
        )
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None
    print(verdict.report)
    if json_file is not None:
        json_file.write_text(json.dumps(verdict.as_json(), indent=1) + "\n")
    raise typer.Exit(1 if verdict.findings else 0 if verdict.is_complete else 130)


def _judge_invariance(
    candidate: str,
    invariant: list[str],
    inputs: str,
    init: str,
    imports: list[str],
    seconds: float,
    progress: Callable[[str], None],
    json_file: Path | None,
) -> NoReturn:
    from ..judge import judge_invariance

    verdict = judge_invariance(
        candidate, invariant, inputs=inputs, init=init, imports=imports, seconds=seconds, progress=progress
    )
    print(verdict.report)
    if json_file is not None:
        json_file.write_text(json.dumps(verdict.as_json(), indent=1) + "\n")
    raise typer.Exit(0 if verdict.is_invariant else 1)
