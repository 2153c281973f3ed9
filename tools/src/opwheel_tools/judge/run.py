"""Starts a judgement: its processes first, which import PyTorch while this one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .processes import Worker

if TYPE_CHECKING:
    from .verdict import Verdict

_WORKER = "opwheel_tools.judge.worker"


def judge(
    candidate: str | Callable[..., Any],
    *,
    reference: str | Callable[..., Any] = "",
    inputs: str | Callable[..., Any] = "",
    init: str | Callable[..., Any] = "",
    imports: Sequence[str] = (),
    seconds: float = 30.0,
    jobs: int = 1,
    save: Path | None = None,
    scripts: bool = True,
    progress: Callable[[str], Any] = lambda _: None,
) -> Verdict:
    """Judge a candidate.

    Each of the first four is a name, ``"module:name"``, ``"file.py:name"`` or ``"namespace::operator"``, or a function
    or class that has one.

    An interrupt (Ctrl-C) ends the trials, and the verdict is of those that were made. Another one leaves out the
    scripts.

    Args:
        candidate: a function, an ``nn.Module`` class, an ``autograd.Function`` class, a registered operator.
        reference: what it is to compute, in PyTorch; an operator of an opwheel library has one.
        inputs: a function without parameters that yields tuples of arguments, ``SampleInput`` objects or one list of
            arguments; random ones come out the same each time, as the seed is 0. Registered operators, candidates or
            references, bring calls; else ``get_inputs`` in the file or module of the reference is taken.
        init: for modules, a function that gives the arguments of both classes; else ``get_init_inputs`` there.
        imports: modules to import first.
        seconds: the time limit of each trial.
        jobs: how many trials run side by side.
        save: a folder for the inputs of findings that no script can make.
        scripts: whether to look for a script that shows each finding again, which takes longer than the trials.
        progress: is called with a line as the work goes on.

    Raises:
        UsageError: a name stands for nothing, there are no inputs, the reference raises on them or is random, or the
            candidate never ran.
    """
    progress(f"{candidate}: the given calls")
    workers = [(Worker(_WORKER), Worker(_WORKER)) for _ in range(max(1, jobs))]
    try:
        for one in workers[0]:
            one.start()
        from .judgement import verdict_of

        given = (candidate, reference, init, inputs)
        return verdict_of(given, tuple(imports), workers, seconds, save, scripts, progress)
    finally:
        for pair in workers:
            for one in pair:
                one.close()
