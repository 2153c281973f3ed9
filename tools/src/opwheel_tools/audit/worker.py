"""A process that knows the library: ``python -m opwheel_tools.audit.worker TASK`` prepares, checks or writes scripts.

It may end at any time, for all that it calls. What it has found is in a file, a line for each thing.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..judge import calls
from ..judge.calls import Call
from ..judge.generated import GENERATED, generated
from ..judge.rounding import symmetric_like
from . import binaries, checks, listing, reproduction, samples
from .outcomes import Outcome, where
from .target import Target, TargetError

_OTHER_STEP = 2e-5
_OWN_FILES = {module.__file__ for module in checks.MODULES}


def main(task_file: str) -> None:
    """Do a task: a JSON file with ``do``, ``target``, ``answers`` and what that kind of task needs."""
    task = json.loads(Path(task_file).read_text())
    with Path(task["answers"]).open("a") as answers:

        def say(**row: Any) -> None:
            print(json.dumps(row), file=answers, flush=True)

        {"prepare": _prepare, "check": _check, "scripts": _scripts}[task["do"]](task, say)


def _target(task: Any) -> Target:
    return Target(task["target"], tuple(task["imports"]))


def _prepare(task: Any, say: Any) -> None:
    """List the operators and write the calls to a file."""
    target = _target(task)
    try:
        loaded = target.load()
    except TargetError as error:
        say(error=str(error))
        return
    bare = {name: name.partition("::")[2] for name in loaded}
    for option, names in task["named"].items():
        for name in names:
            if name not in bare and name not in bare.values():
                some = ", ".join(loaded[:20]) + (", ..." if len(loaded) > 20 else "")
                say(error=f"there is no operator {name!r}; there are: {some}", given=option)
                return
    only = task["named"]["--only"]
    wanted = [name for name in loaded if not only or name in only or bare[name] in only]
    chosen = [one for one in map(listing.describe, wanted) if one.schema]
    names = [one.operator for one in chosen]
    found: list[Call] = []
    try:
        if task["samples"]:
            found += samples.given(task["samples"], names)
        if task["recorded"]:
            found += [c for c in calls.load(Path(task["recorded"])) if c.operator in names]
    except (samples.SamplesError, calls.CallsFileError) as error:
        say(error=str(error), given="--samples" if isinstance(error, samples.SamplesError) else "--record")
        return
    known = {c.operator for c in found}
    found += [c for name in names if name not in known for c in generated(name)]
    calls.save(found, Path(task["calls"]))
    say(
        operators=[one._asdict() for one in chosen],
        binaries=[{**one._asdict(), "summary": one.summary} for one in map(binaries.read, _libraries(target))],
        calls=[[c.operator, c.origin] for c in found],
        torch=torch.__version__,
        version=str(getattr(sys.modules.get(target.package), "__version__", "")),
    )


def _libraries(target: Target) -> list[Path]:
    if target.is_file:
        return [Path(target.name)]
    file = getattr(sys.modules.get(target.package), "__file__", None)
    return [] if file is None or target.name == "torch" else binaries.of_package(file)


def _check(task: Any, say: Any) -> None:
    """Run cells, one after another; each is announced before it begins. A call that fails has no further ones."""
    _target(task).load()
    known = calls.load(Path(task["calls"]))
    broken = set()
    for index, call, check in task["cells"]:
        if call in broken:
            continue
        say(begin=index)
        outcome, message = judge(known[call], check)
        messages = message.splitlines() if outcome is Outcome.WRONG else [message]
        say(end=index, outcome=outcome.value, messages=messages)
        if check == "call" and outcome is not Outcome.RIGHT:
            broken.add(call)


def judge(call: Call, check: str) -> tuple[Outcome, str]:
    """Run a check on a call. What looks wrong is measured again, at other values and with another step.

    Returns:
        The outcome, and what is wrong, a line for each thing; or what was raised, or kept it from being tried.
    """
    function = checks.CHECKS[check]
    torch.manual_seed(0)
    first = _once(lambda: function(call.op, *calls.fresh((call.args, call.kwargs))))
    if first[0] is Outcome.RAISES and check == "call" and call.origin == GENERATED:
        return Outcome.NOT_TRIED, f"there is no call that fits: {first[1]}"
    if first[0] is not Outcome.WRONG:
        return first
    nudged = _nudged(call)
    second = _once(lambda: function(call.op, *nudged, step=_OTHER_STEP))
    again = {where(second[0], line) for line in second[1].splitlines()} if second[0] is Outcome.WRONG else set()
    confirmed = [line for line in first[1].splitlines() if where(Outcome.WRONG, line) in again]
    if confirmed:
        return Outcome.WRONG, "\n".join(confirmed)
    return Outcome.NOT_TRIED, f"wrong here, but not at values nearby: {first[1]}"


def _once(measure: Callable[[], Iterator[str]]) -> tuple[Outcome, str]:
    """What a check says; where it raises, what it had found until then counts."""
    found: dict[str, str] = {}
    ended = Outcome.RIGHT, ""
    try:
        for problem in measure():
            line = " ".join(problem.split())
            found.setdefault(where(Outcome.WRONG, line), line)
    except checks.common.NotTried as reason:
        ended = Outcome.NOT_TRIED, str(reason)
    except checks.common.Noted as note:
        ended = Outcome.NOTED, str(note)
    except Exception as error:
        is_own = traceback.extract_tb(error.__traceback__)[-1].filename in _OWN_FILES
        words = f"{type(error).__name__}: {error}"
        ended = (Outcome.NOT_TRIED, f"the audit cannot measure this: {words}") if is_own else (Outcome.RAISES, words)
    return (Outcome.WRONG, "\n".join(found.values())) if found else ended


def _nudged(call: Call) -> Any:
    """The call's arguments, floating-point numbers larger by up to one part in a hundred; zeros stay."""
    generator = torch.Generator().manual_seed(13)

    def nudge(value: Any) -> Any:
        if isinstance(value, Tensor) and value.layout is torch.strided and value.is_floating_point():
            noise = torch.rand(value.shape, generator=generator, dtype=torch.float64)
            noise = symmetric_like(value.detach(), noise)
            return (value.detach().double() * (1 + 0.01 * noise)).to(value.dtype)
        return value.detach().clone() if isinstance(value, Tensor) else value

    return pytree.tree_map(nudge, (call.args, call.kwargs))


def _scripts(task: Any, say: Any) -> None:
    """Write the reproductions of findings, each with random and with the call's own numbers."""
    known = calls.load(Path(task["calls"]))
    for call, check, message in task["findings"]:
        forms = [
            reproduction.script(_target(task), known[call], check, message, exact=exact) for exact in (False, True)
        ]
        say(scripts=list(dict.fromkeys(forms)))


if __name__ == "__main__":
    main(sys.argv[1])
