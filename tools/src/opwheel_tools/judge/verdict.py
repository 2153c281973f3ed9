"""What a judgement comes to."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch
from opwheel.formats import Format

from .rounding import FACTOR

FORMAT = Format("opwheel judge", 1)

GROUPS = {
    "values": "wrong values",
    "numbers": "wrong for some numbers",
    "shapes": "wrong for some shapes",
    "dtypes": "wrong for some dtypes",
    "layouts": "wrong for some strides or offsets",
    "aliases": "wrong where tensors share memory",
    "writes": "changes what it is not to change",
    "module": "leaves other buffers in its module",
    "memory": "depends on what other or new memory holds",
    "out of bounds": "writes memory out of bounds",
    "gradients": "wrong gradients",
    "saved tensors": "gradients of inputs that were changed since",
    "second derivatives": "wrong second derivatives",
    "forward mode": "wrong tangents",
    "no_grad": "other results under torch.no_grad",
    "inference mode": "other results in inference mode",
    "compile": "other results under torch.compile",
    "vmap": "other results under vmap",
    "autocast": "wrong results under autocast",
    "threads": "other results in several threads",
    "state": "results depend on earlier calls",
    "crash": "ends or hangs its process",
    "calls the reference": "calls the reference",
    "replaces functions": "replaces functions of PyTorch or the clock",
    "running": "leaves threads or processes running",
}


class Finding(NamedTuple):
    """A cause, and the first trial that showed it.

    Args:
        group: a key of :data:`GROUPS`.
        trial: what was done, in words.
        message: what was wrong.
        trials: how many show it.
        reproduction: a script that shows it, and was run; empty where there is none.
        not_reproduced: why there is none.
        shown_by: all trials that show it, each with what was wrong.
    """

    group: str
    trial: str
    message: str
    trials: int
    reproduction: str = ""
    not_reproduced: str = ""
    shown_by: list[str] = []  # noqa: RUF012  # never written


class Verdict(NamedTuple):
    """What a judgement comes to.

    Args:
        candidate: its name.
        reference: its name.
        findings: one for each cause.
        tried: how many trials were compared.
        refused: what the candidate raised, and in how many trials.
        not_applicable: how many trials the reference does not take.
        error: the largest error, as a multiple of that of PyTorch's evaluation of the reference in the same trial, or
            of a unit of rounding where that is larger.
        notes: what else is to be known.
        is_complete: whether every trial was made.
        inputs: what gives the calls; empty where an operator brings them.
        init: what gives the arguments of modules.
    """

    candidate: str
    reference: str
    findings: list[Finding]
    tried: int
    refused: Counter[str]
    not_applicable: int
    error: float
    notes: list[str]
    is_complete: bool = True
    inputs: str = ""
    init: str = ""

    @property
    def is_right(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def line(self) -> str:
        """The verdict in one line."""
        tried = f"{self.tried} trials" + ("" if self.is_complete else ", stopped before the end")
        if self.findings:
            return f"WRONG: {self.candidate}: {'; '.join(GROUPS[f.group] for f in self.findings)} ({tried})"
        if not self.is_complete:
            return f"nothing found: {self.candidate}: {tried}"
        return (
            f"right: {self.candidate}: {tried}; it is off by at most {self.error:.2g} times what PyTorch's evaluation "
            f"of the reference or rounding is; {FACTOR:g} times are allowed"
        )

    @property
    def report(self) -> str:
        """The verdict, and one screen of what was found."""
        lines = [self.line]
        for one in self.findings:
            lines += ["", f"{GROUPS[one.group]} ({one.trials} trials): {one.trial}", f"  {one.message}"]
            lines += [f"    {line}" for line in one.reproduction.splitlines()] or [f"  {one.not_reproduced}"]
        lines += [f"refused in {trials} trials: {reason}" for reason, trials in self.refused.most_common(8)]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` writes."""
        return {
            "format": FORMAT.as_json(),
            **self._asdict(),
            "is_right": self.is_right,
            "findings": [finding._asdict() for finding in self.findings],
            "refused": dict(self.refused),
            "allowed": FACTOR,
            "torch": torch.__version__,
        }
