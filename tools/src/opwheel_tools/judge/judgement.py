"""A judgement: given calls, trials around them, what they come to."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opwheel.text import printable

from . import subjects, trials, variants
from .cases import Case
from .comparison import Compared, compare
from .execution import Execution, LoadError, Tried, numbered
from .findings import Shown, finding_of, without_script
from .processes import Worker
from .reproduction import Names
from .trials import Trial
from .usage import UsageError
from .variants import Variant
from .verdict import GROUPS, Finding, Verdict


def verdict_of(
    given: tuple[str | Callable[..., Any], ...],
    imports: tuple[str, ...],
    workers: Sequence[tuple[Worker, Worker]],
    seconds: float,
    save: Path | None,
    scripts: bool,
    progress: Callable[[str], Any],
) -> Verdict:
    """Judge a candidate.

    Args:
        given: candidate, reference, init and inputs, as :func:`opwheel_tools.judge.judge` takes them.
        imports: modules to import first.
        workers: pairs of processes, for reference and candidate.
        seconds: the time limit of each trial.
        save: a folder for the inputs of findings that no script can make.
        scripts: whether to look for scripts.
        progress: is called with a line as the work goes on.

    Raises:
        UsageError: there is nothing to judge.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as expected:
        try:
            candidate, reference, init, inputs = map(subjects.name_of, given)
            modules = subjects.imports_of(imports, candidate, reference)
            names = Names(candidate, reference, init, inputs, modules)
            execution = Execution(Path(folder), Path(expected), seconds, workers)
            return _Judgement(names, execution, seconds, save, scripts, progress).verdict()
        except (LoadError, subjects.SubjectError) as error:
            raise UsageError(str(error)) from None


class _Judgement:
    """What is known of a candidate so far."""

    def __init__(
        self,
        names: Names,
        execution: Execution,
        seconds: float,
        save: Path | None,
        scripts: bool,
        progress: Callable[[str], Any],
    ) -> None:
        self.names = names
        self.execution = execution
        self.seconds = seconds
        self.save = save
        self.scripts = scripts
        self.progress = progress
        self.trials: list[Trial] = []
        self.cases: list[Case] = []
        self.code: list[Any] = []
        self.refused: Counter[str] = Counter()
        self.not_applicable = 0
        self.notes: dict[str, None] = {}
        self.errors: list[Compared] = []
        self.wrong: dict[str, list[Shown]] = defaultdict(list)  # by group
        self.wrong_calls: set[tuple[int, Variant]] = set()  # whose values are wrong

    def verdict(self) -> Verdict:
        """Do all of it."""
        is_complete = True
        try:
            self._try_all()
        except KeyboardInterrupt:
            self.progress("stopped; now the scripts of what was found; Ctrl-C leaves them out")
            is_complete = False
        return Verdict(
            self.names.candidate,
            self.names.reference,
            self._findings(),
            len(self.errors) + sum(map(len, self.wrong.values())),
            self.refused,
            self.not_applicable,
            max((one.error / max(1.0, one.own_error) for one in self.errors), default=0.0),
            list(self.notes),
            is_complete,
            self.names.inputs,
            self.names.init,
        )

    def _try_all(self) -> None:
        """The trials on the given calls, and around them."""
        known = self._prepare()
        first = [
            one
            for i, row in enumerate(known)
            for one in trials.plain(i, variants.as_given(self.cases[i]), tuple(row["wrt"]))
        ]
        self._run(first, made=[row["made"] for row in known if row["made"]])
        if not self.errors and not self.wrong:
            why = next(iter(self.refused), "it gave nothing that could be compared")
            raise UsageError(f"the candidate never ran: {why}")
        self._say_first()
        for i, row in enumerate(known if set(self.wrong) != {"crash"} or self.errors else ()):
            self._around(i, row)

    def _prepare(self) -> list[dict[str, Any]]:
        """Load both, and say what is known of each of the given calls."""
        *known, of_all = self.execution.prepare(self.names)
        if any(row["is_random"] for row in known):
            raise UsageError("the reference gives other results for the same inputs; make it draw with a fixed seed")
        self.names = self.names._replace(**{key: of_all[key] for key in ("reference", "inputs", "init")})
        candidate = self.execution.load(self.names)
        self.names = self.names._replace(is_class=of_all["is_class"], is_interpreted=candidate["is_interpreted"])
        own = {tuple(one) for one in candidate["code"]}
        self.code = [one for one in of_all["code"] if tuple(one) not in own]
        self.cases = [Case.load(self.execution.folder / f"case-{i}") for i in range(of_all["count"])]
        if candidate["state"] != of_all["state"] and of_all["state"]:
            self.cases = [one._replace(tensors=one.tensors[: one.inputs], state=()) for one in self.cases]
            self.notes[
                "the modules' state dicts have other names or shapes: each has parameters that the seed 0 makes, and "
                "gradients of inputs alone are compared"
            ] = None
        for row, case in zip(known, self.cases, strict=True):
            row["wrt"] = tuple(i for i in row["wrt"] if i < len(case.tensors))
        return known

    def _say_first(self) -> None:
        """What the given calls come to, before the calls around them are made."""
        if not self.wrong:
            self.progress(f"right on the given calls ({len(self.errors)} trials)")
        for group, shown in self.wrong.items():
            self.progress(f"WRONG on the given calls: {GROUPS[group]}: {shown[0].message}")

    def _around(self, i: int, row: dict[str, Any]) -> None:
        """The trials around one of the given calls."""
        case, wrt = self.cases[i], row["wrt"]
        base = next(filter(lambda specs: self._is_taken(i, specs), variants.bases(case)), None)
        if base is None:
            return
        variant = variants.base_variant(base)
        ranks = {j: len(base[j].shape) for j in row["floats"]}
        wanted = list(trials.every_way(i, variant, wrt, ranks, case.inputs, len(case.state)))
        wanted += trials.of_lower_bits(i, variant, [spec.dtype for spec in base])
        wanted += [one for other in variants.variants(base, case.inputs) for one in trials.around(i, other, wrt)]
        self._run([*wanted, trials.misuse(i, variant, case.inputs)])

    def _is_taken(self, i: int, specs: list[variants.Spec]) -> bool:
        """Whether the reference takes such tensors."""
        found = self._number([Trial(i, variants.base_variant(specs), "values")])
        return bool(found) and self.execution.is_taken(self.names, *found[0])

    def _number(self, wanted: list[Trial]) -> list[tuple[int, Trial]]:
        found, impossible = numbered(wanted, self.cases, self.execution.folder, self.trials)
        self.not_applicable += impossible
        return found

    def _run(self, wanted: list[Trial], made: Sequence[list[str]] = ()) -> None:
        """Run trials on both, and compare.

        Args:
            wanted: the trials.
            made: operators that the reference calls on the given calls, if it has no code by which it is recognised.
        """
        numbers, done = self._number(wanted), 0
        for i, chunk in enumerate(self.execution.run(self.names, numbers, {"code": self.code, "made": list(made)})):
            before = set(self.wrong)
            for one in chunk:
                self._judge(one)
            done += len(chunk)
            if i or len(numbers) > len(chunk):
                self.progress(f"{self.names.candidate}: {done} of {len(numbers)} trials")
                for group in set(self.wrong) - before:
                    self.progress(f"{GROUPS[group]}: {self.wrong[group][0].message}")

    def _judge(self, tried: Tried) -> None:
        number, row = tried.number, tried.row
        trial = self.trials[number]
        if tried.refused:
            self.not_applicable += 1
            if tried.how:
                self.notes[f"{printable(tried.refused)}: {trial.name}"] = None
        elif trial.is_misuse and (row is None or "out_of_bounds" in row):
            self.notes["it does not check shapes: a call with one that does not fit may end its process"] = None
        elif row is None:
            self.wrong["crash"].append(Shown(number, printable(tried.how)))
        elif "refused" in row:
            self.refused[printable(row["refused"]).partition("\n")[0][:200]] += 1
        elif "not_tried" in row:
            self.notes[row["not_tried"]] = None
        elif "failed" in row:
            self.notes[f"{printable(row['failed'])}: {trial.name}"] = None
        elif "out_of_bounds" in row:
            self.wrong["out of bounds"].append(Shown(number, row["out_of_bounds"]))
        else:
            self._compare(tried, row)

    def _compare(self, tried: Tried, row: dict[str, Any]) -> None:
        trial = self.trials[tried.number]
        if row["called"]:
            self.wrong["calls the reference"].append(Shown(tried.number, f"it calls {row['called'][0]}"))
        if row["replaced"]:
            self.wrong["replaces functions"].append(Shown(tried.number, ", ".join(row["replaced"][:4])))
        if row["running"]:
            self.wrong["running"].append(Shown(tried.number, ", ".join(row["running"][:4])))
        compared = compare(tried.got, tried.expected, _what(trial), any_dtype=trial.program == "under_autocast")
        if compared.is_narrow:
            self.notes["float64 is computed with float32 inside"] = None
        if not all(one.get("is_wide", True) for one in tried.expected):
            self.notes["the reference refuses float64; it is compared in its own dtype"] = None
        if compared.problem:
            is_of_state = trial.program.startswith("inputs") and compared.place.tensor >= self.cases[trial.case].inputs
            group = "dtypes" if compared.is_dtype else "module" if is_of_state else self._cause(trial)
            self.wrong[group].append(Shown(tried.number, compared.problem, compared.place))
            if trial.program == "values":
                self.wrong_calls.add((trial.case, trial.variant))
        else:
            self.errors.append(compared)

    def _cause(self, trial: Trial) -> str:
        """The group of a trial that is wrong: what is wrong for the plain call is no finding of every other one."""
        if "values" in self.wrong and not trial.program.startswith(("inputs", "state")):
            return "values"
        if "gradients" in self.wrong and (trial.of_derivatives or trial.program == "second_derivatives"):
            return "gradients"
        if trial.group == "memory" and (trial.case, trial.variant) in self.wrong_calls:
            return trial.variant.group
        return trial.group

    def _findings(self) -> list[Finding]:
        """What was found, with scripts; where none are asked for, and after an interrupt, without."""
        found: list[Finding] = []
        why_not = "no script was asked for"
        try:
            for group, shown in self.wrong.items() if self.scripts else ():
                self.progress(f"reproducing: {GROUPS[group]}")
                found.append(finding_of(group, shown, self.trials, self.cases, self.names, self.seconds, self.save))
        except KeyboardInterrupt:
            why_not = "the judge was stopped"
        left = list(self.wrong.items())[len(found) :]
        return found + [without_script(group, shown, self.trials, why_not) for group, shown in left]


def _what(trial: Trial) -> str:
    """What the tensors are that are compared."""
    if trial.of_derivatives or trial.program == "second_derivatives":
        return "gradient"
    if trial.program.startswith("state"):
        return "parameter or buffer"
    if trial.program == "counts_lower_bits":
        return f"whether a result changes when input {trial.numbers[0]} is rounded to {trial.numbers[1]} bits"
    return "input" if trial.program.startswith("inputs") else "result"
