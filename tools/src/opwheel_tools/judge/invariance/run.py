"""Judges claims about bits: starts the process that calls the candidate, again where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opwheel.text import printable

from ..processes import run_worker
from ..subjects import SubjectError, imports_of, name_of
from ..usage import UsageError
from .claims import claims_of
from .verdict import Checked, InvarianceVerdict, text_of

_WORKER = "opwheel_tools.judge.invariance.worker"


def judge_invariance(
    candidate: str | Callable[..., Any],
    invariant: str | Iterable[str] | Mapping[str, Any],
    *,
    inputs: str | Callable[..., Any] = "",
    init: str | Callable[..., Any] = "",
    imports: Sequence[str] = (),
    seconds: float = 60.0,
    progress: Callable[[str], Any] = lambda _: None,
) -> InvarianceVerdict:
    """Judge whether the bits of a candidate's results depend on what they must not depend on; no reference is needed.

    It is called with arguments made of the given ones: more rows, odd widths, other layouts, as the claim has it.

    Args:
        candidate: a function, an ``nn.Module`` class, an ``autograd.Function`` class, a registered operator, or its
            name, as :func:`opwheel_tools.judge.judge` takes it. Its results are called ``result``, or ``result0``,
            ``result1`` and so on where it returns a tuple.
        invariant: claims: ``"batch:x=0,result=0"``, ``"threads"``, several of these, or a mapping as
            ``Operator(invariant=...)`` takes it. Dimensions with a claim that needs none say which is of rows, of
            which there may be more.
        inputs: a function without parameters that yields tuples of arguments; registered operators bring calls.
        init: for modules, a function that gives the arguments of the class.
        imports: modules to import first.
        seconds: the time limit of one check.
        progress: is called with a line as the work goes on.

    Raises:
        UsageError: a name stands for nothing, a claim is not understood or could not be tried on any call, there are
            no inputs, or the candidate raises on them.
    """
    claims = claims_of(invariant)
    try:
        names = {"candidate": name_of(candidate), "inputs": name_of(inputs), "init": name_of(init)}
    except SubjectError as error:
        raise UsageError(str(error)) from None
    modules = imports_of(imports, names["candidate"])
    ended: dict[tuple[int, int], dict[str, Any]] = {}  # by number of call and claim
    count = 0
    while True:
        task = {**names, "imports": modules, "claims": claims, "done": list(ended)}
        rows, how = run_worker(_WORKER, task, seconds, imports_alike=True)
        begun = None
        for row in rows:
            if "error" in row:
                raise UsageError(row["error"])
            count = row.get("calls", count)
            begun = row.get("begin", begun)
            if "end" in row:
                ended[tuple(row["end"])] = row
                progress(f"{names['candidate']}: {len(ended)} of {count * len(claims)} checks")
                begun = None
        if begun is None:
            if how:
                raise UsageError(f"the process that calls the candidate ended: {printable(how)}")
            break
        ended[tuple(begun)] = {"found": printable(how) or "it ends its process"}
    checked = tuple(_checked(text_of(claim), [ended[i, j] for i in range(count)]) for j, claim in enumerate(claims))
    for one in checked:
        if not one.held and not one.found:
            raise UsageError(f"{one.claim} could not be tried: {one.not_tried[0]}")
    return InvarianceVerdict(names["candidate"], checked, count)


def _checked(claim: str, rows: list[dict[str, Any]]) -> Checked:
    """What the checks of one claim come to."""
    held = [row for row in rows if not {"found", "refused", "not_tried"}.intersection(row)]
    return Checked(
        claim,
        len(held),
        tuple(row["found"] for row in rows if "found" in row),
        tuple(
            row.get("not_tried") or f"the candidate raises {row['refused']}"
            for row in rows
            if "not_tried" in row or "refused" in row
        ),
        tuple(text for row in held for text in row.get("left_out", ())),
    )
