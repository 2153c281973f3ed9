"""A process with the reference or the candidate: ``python -m opwheel_tools.judge.worker``, tasks come on stdin.

The candidate's process gets inputs and gives results; it never sees the reference's. Each trial is announced before it
begins, so that a process that dies or hangs says with which.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from . import cases, declared, interpreter, memory, samples, saved, subjects, watching
from .cases import Case
from .expectation import Expected, RefusedByReference, expect
from .lower_bits import expect_lower_bits
from .memory import NotGuarded, OutOfBounds
from .processes import DONE
from .programs import PROGRAMS, Program, Refused, with_memory
from .subjects import Subject

Say = Callable[..., None]


def main() -> None:
    """Do the tasks whose files standard input names; what is judged has none."""
    with os.fdopen(os.dup(0)) as names:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        if not torch.cuda.is_available():
            os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported
        torch.set_num_threads(1)  # another process runs beside this one
        importlib.import_module("torch.fx.experimental.symbolic_shapes")  # as the first backward does, in a second
        session = Session()
        for name in names:
            session.do(name.strip())


class Session:
    """What a process knows: what it has loaded, and how PyTorch's functions were before that."""

    def __init__(self) -> None:
        self._functions = watching.functions()
        self._subjects: dict[str, Subject] = {}

    def do(self, task_file: str) -> None:
        """Do a task: a JSON file with ``do``, ``folder``, ``answers``, ``imports``, ``init`` and what it needs more."""
        task = json.loads(Path(task_file).read_text())
        with Path(task["answers"]).open("a") as answers:

            def say(**row: Any) -> None:
                print(json.dumps(row), file=answers, flush=True)

            work = {"prepare": self._prepare, "load": self._load, "expect": self._expect, "try": self._try}
            try:
                for module in task["imports"]:
                    import_module(module)
                work[task["do"]](task, say)
            except (subjects.SubjectError, cases.CaseError) as error:
                say(error=str(error))
            say(**DONE)

    def _subject(self, name: str, init: str) -> Subject:
        if name not in self._subjects:
            thing = subjects.find(name)
            if isinstance(thing, subjects.PACKET):  # it writes its arguments into a message that nobody reads for
                torch.set_printoptions(threshold=0, edgeitems=1)  # each overload that does not take them
            arguments = subjects.find(init)() if init and _is_module_class(thing) else ()
            self._subjects[name] = subjects.make(thing, arguments)
        return self._subjects[name]

    def _prepare(self, task: Any, say: Say) -> None:
        """Write the given calls, with the reference's state, to files, and say what is to be known of them."""
        reference, inputs, init = _found(task)
        subject = self._subject(reference, init)
        given = cases.cases_of(subjects.find(inputs)) if inputs else samples.samples_of(_operator(task))
        found = [case.with_state(subject.state) for case in given]
        for i, case in enumerate(found):
            case.save(Path(task["folder"]) / f"case-{i}")
            try:
                say(**_known(subject, case))
            except Exception as error:  # whatever the reference raises
                raise cases.CaseError(f"the reference raises on call {i}: {type(error).__name__}: {error}") from error
        say(
            code=[list(one) for one in subject.code],
            count=len(found),
            state={name: list(value.shape) for name, value in subject.state.items()},
            reference=reference,
            inputs=inputs,
            init=init,
            is_class=_is_module_class(subjects.find(reference)),
        )

    def _load(self, task: Any, say: Say) -> None:
        """Load the candidate, and say what state it has, and which code it is."""
        subject = self._subject(task["subject"], task["init"])
        state = {name: list(value.shape) for name, value in subject.state.items()}
        is_interpreted = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") == "1"
        say(state=state, code=[list(one) for one in subject.code], is_interpreted=is_interpreted)

    def _expect(self, task: Any, say: Say) -> None:
        """Compute what each trial is to give."""
        subject = self._subject(task["subject"], task["init"])
        for number, trial in task["trials"]:
            with _saying(number, say):
                path = Path(task["folder"]) / f"trial-{number}"
                try:
                    case = _with_saved(path)
                    expected = _expected(trial, subject, case)
                except RefusedByReference as error:
                    say(end=number, refused=str(error))
                    continue
                torch.save(expected, Path(task["expected"]) / str(number))
                say(end=number)

    def _try(self, task: Any, say: Say) -> None:
        """Run the candidate on each trial."""
        folder = Path(task["folder"])
        subject = self._subject(task["subject"], task["init"])
        code = {tuple(one) for one in task["code"]} - set(subject.code)
        for number, trial in task["trials"]:
            with _saying(number, say):
                file = folder / f"trial-{number}"
                row, got = self._tried(subject, file, trial, code)
                if got is not None:
                    torch.save([None if one is None else with_memory(one) for one in got], folder / f"got-{number}")
                    row["called"] = row["called"] or _same_calls(task["made"], subject, file)
                say(end=number, **row)

    def _tried(
        self, subject: Subject, file: Path, trial: Any, code: set[tuple[Any, ...]]
    ) -> tuple[dict[str, Any], list[torch.Tensor | None] | None]:
        """What a trial comes to, and the candidate's tensors; None where it gave none."""
        program, numbers, before = PROGRAMS[trial["program"]], tuple(trial["numbers"]), watching.running()
        try:
            watched = watching.calls_of(code if trial["program"] == "values" else set())
            with watched as called, memory.watched(is_needed="among" not in trial["program"]):
                got = _run(program, numbers, subject, file)
        except Refused as reason:
            return {"refused": str(reason)}, None
        except NotGuarded as reason:
            return {"not_tried": str(reason)}, None
        except OutOfBounds as found:
            return {"out_of_bounds": str(found)}, None
        except Exception as error:  # whatever the candidate raises
            return {"refused": f"{type(error).__name__}: {error}"}, None
        replaced, running = watching.replaced(self._functions), watching.left_running(before)
        return {"called": called, "replaced": replaced, "running": running}, got


def _expected(trial: Any, subject: Subject, case: Case) -> list[Expected]:
    numbers = tuple(trial["numbers"])
    if trial["program"] == "counts_lower_bits":
        return expect_lower_bits(numbers, subject, case)
    return expect(PROGRAMS[trial["program"]], numbers, subject, case, is_given=trial["is_given"])


def _with_saved(path: Path) -> Case:
    """The call in a file, and in the file, with tensors that a forward operator gives.

    Raises:
        RefusedByReference: the forward operator's reference does not take the others.
    """
    case = Case.load(path)
    if not case.saved:
        return case
    try:
        case = saved.made(case)
    except Exception as error:  # whatever the reference raises
        raise RefusedByReference(f"{type(error).__name__}: {error}") from error
    case.save(path)
    return case


@contextmanager
def _saying(number: int, say: Say) -> Iterator[None]:
    """Announce a trial; an exception in here is this tool's, and no crash of what is judged."""
    say(begin=number)
    try:
        yield
    except Exception as error:
        say(end=number, failed=f"judge itself failed: {type(error).__name__}: {error}")


def _run(program: Program, numbers: tuple[int, ...], subject: Subject, file: Path) -> list[torch.Tensor | None]:
    """What a program makes of a call from a file, within the limits of Triton's interpreter."""
    interpreter.limit()
    case = Case.load(file)  # between the guards
    got = program.run(case.function(subject.function), case.tensors, *numbers)
    is_too_late = interpreter.limit()  # the candidate has imported Triton just now
    return _run(program, numbers, subject, file) if is_too_late else got


def _is_module_class(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, torch.nn.Module)


def import_module(module: str) -> None:
    """Import what a user names."""
    try:
        importlib.import_module(module)
    except Exception as error:
        raise subjects.SubjectError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error


def _found(task: Any) -> tuple[str, str, str]:
    """The names of the reference, its inputs and its init inputs, where they are not given."""
    reference, inputs, init = task["subject"], task["inputs"], task["init"]
    if not reference:
        candidate = task["candidate"]
        if "::" not in candidate or declared.overload_of(candidate) is None:
            raise subjects.SubjectError(
                f"nothing says what {candidate} is to compute; name a function of PyTorch with --reference"
            )
        reference = f"{candidate}{subjects.DECLARED}"
    place, _, _ = reference.rpartition(":")
    if "::" not in reference:
        inputs = inputs or _if_there(f"{place}:get_inputs")
        init = init or _if_there(f"{place}:get_init_inputs")
    return reference, inputs, init


def _if_there(name: str) -> str:
    try:
        subjects.find(name)
    except subjects.SubjectError:
        return ""
    return name


def _operator(task: Any) -> str:
    """The operator that brings calls."""
    for name in (task["candidate"], task["subject"]):
        if "::" in name:
            return str(name).removesuffix(subjects.DECLARED)
    raise cases.CaseError("there are no inputs; name a function that yields tuples of arguments with --inputs")


def _known(subject: Subject, case: Case) -> dict[str, Any]:
    """Whether the reference gives the same twice, takes float64, which inputs have gradients, what operators it is."""
    function = case.function(subject.function)
    first, second = (PROGRAMS["values"].run(function, [x.clone() for x in case.tensors]) for _ in range(2))
    is_random = not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, second, strict=True))
    floats = tuple(i for i, x in enumerate(case.tensors) if x.is_floating_point())
    of_parameters = {i for i, name in enumerate(case.state, case.inputs) if name in subject.parameters}
    asked = [i for i in floats if i < case.inputs or i in of_parameters]
    wrt: tuple[int, ...] = ()
    try:
        wide = case.function(subject.in_float64)
        tensors = [x.double() if i in floats else x.clone() for i, x in enumerate(case.tensors)]
        found = PROGRAMS["gradients"].run(wide, tensors, *asked)
        wrt = tuple(i for i, g in zip(asked, found, strict=True) if g is not None)
    except Exception:  # noqa: S110  # then there is none
        pass
    made = [] if subject.code else _operators(subject, case)
    return {
        "is_random": is_random,
        "wrt": wrt,
        "floats": [i for i in floats if i < case.inputs],
        "inputs": case.inputs,
        "made": made,
    }


def _operators(subject: Subject, case: Case) -> list[str]:
    operators = watching.Operators()
    with operators:
        case.function(subject.function)(*[x.clone() for x in case.tensors])
    return operators.made


def _same_calls(made: list[list[str]], subject: Subject, file: Path) -> list[str]:
    """What a candidate in Python calls, where these are the operators of a reference that has no code, and no more.

    Args:
        made: what the reference calls on each of the given calls.
        subject: the candidate.
        file: has the call.
    """
    if not made or not subject.code or (found := _operators(subject, Case.load(file))) not in made:
        return []
    return [f"{', '.join(found)}, as the reference does, and nothing else"]


if __name__ == "__main__":
    main()
