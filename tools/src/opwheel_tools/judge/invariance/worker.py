"""A process that calls the candidate: ``python -m opwheel_tools.judge.invariance.worker TASK``.

It may end at any time, for all that it calls. Each check is announced before it begins.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from opwheel.dispatch.invariance import WITH_DIMENSIONS, dimensions_of
from torch import Tensor

from ...invariance.bits import DifferenceError
from ...invariance.checks import CHECKS, Call
from ...invariance.subject import Subject
from .. import samples, subjects
from ..cases import Case, CaseError, cases_of
from ..usage import UsageError
from ..worker import import_module
from .callee import with_names
from .claims import Claim, check_names


def main(task_file: str) -> None:
    """Do a task: a JSON file with ``claims``, what :func:`.run.judge_invariance` takes, ``done`` and ``answers``."""
    task = json.loads(Path(task_file).read_text())
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported
    with Path(task["answers"]).open("a") as answers:

        def say(**row: Any) -> None:
            print(json.dumps(row), file=answers, flush=True)

        try:
            for row in _checked(task):
                say(**row)
        except (subjects.SubjectError, CaseError, UsageError) as error:
            say(error=str(error))


def _checked(task: Any) -> Iterator[dict[str, Any]]:
    for module in task["imports"]:
        import_module(module)
    thing = subjects.find(task["candidate"])
    init = subjects.find(task["init"])() if task["init"] else ()
    function = subjects.make(thing, init).function
    given = _cases(task)
    yield {"calls": len(given)}
    for i, case in enumerate(given):
        subject, arguments = with_names(thing, function, case)
        for j, (name, dimensions) in enumerate(task["claims"]):
            claim = (name, dimensions)
            tensors = [key for key, value in arguments.items() if isinstance(value, Tensor)]
            check_names(claim, tensors, (*subject.results, *subject.written))
            if [i, j] not in task["done"]:
                yield {"begin": [i, j]}
                yield {"end": [i, j], **_check(claim, subject, arguments)}


def _cases(task: Any) -> list[Case]:
    if task["inputs"]:
        return cases_of(subjects.find(task["inputs"]))
    if "::" in task["candidate"]:
        return samples.samples_of(task["candidate"])
    raise CaseError("there are no inputs; name a function that yields tuples of arguments with --inputs")


def _check(claim: Claim, subject: Subject, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a check comes to: ``found``, ``refused`` or ``not_tried`` where it does not hold, and what was left out."""
    name, dimensions = claim
    own = dimensions_of({key: dim for key, dim in dimensions.items() if key in arguments}, arguments)
    if name in WITH_DIMENSIONS and not own:
        return {"not_tried": "the call does not have these dimensions"}
    call = Call(subject, arguments, own | {key: dim for key, dim in dimensions.items() if key not in arguments})
    if name in WITH_DIMENSIONS and not call.has_rows:
        return {"not_tried": "the dimensions have different sizes, or no elements"}
    try:
        CHECKS[name](call)
    except DifferenceError as error:
        return {"found": str(error)}
    except Exception as error:  # whatever the candidate raises on other sizes
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"left_out": call.left_out}


if __name__ == "__main__":
    main(sys.argv[1])
