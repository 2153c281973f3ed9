"""Makes a finding of the trials that show it: with a script that shows it again, and was run."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from .cases import Case
from .comparison import Place
from .processes import shows
from .reproduction import LINES, Names, Wanted, scripts
from .trials import Trial
from .verdict import Finding

_TRIALS = 3  # that are reproduced, until one is
_SCRIPTS = 8  # of each


class Shown(NamedTuple):
    """A trial that shows something wrong.

    Args:
        number: of the trial.
        message: what is wrong.
        place: where.
    """

    number: int
    message: str
    place: Place = Place(0)


def finding_of(
    group: str,
    shown: list[Shown],
    trials: list[Trial],
    cases: list[Case],
    names: Names,
    seconds: float,
    save: Path | None,
) -> Finding:
    """The finding of a group.

    Args:
        group: a key of ``GROUPS``.
        shown: the trials that show it; there is at least one.
        trials: all, by number.
        cases: the given calls.
        names: of candidate and reference.
        seconds: the time limit of a trial; a script may take three times that.
        save: a folder for the inputs of a trial that no text makes, or None.
    """
    made = [one for one in shown if trials[one.number].variant.group]  # with numbers that a script can make
    order = [*made, *(one for one in shown if one not in made)]
    first, text, file = order[0], "", None
    for one in order[:_TRIALS]:
        trial = trials[one.number]
        file = None if save is None else _saved(trial, cases[trial.case], save, f"{group}-{one.number}.pt")
        wanted = Wanted(group, one.message, trial, cases[trial.case], one.place, str(file or ""))
        texts = islice(scripts(names, wanted), _SCRIPTS)
        text = next((t for t in texts if shows(t, 3 * seconds, is_crash=group == "crash")), "")
        if file is not None and str(file) not in text:
            file.unlink()
        if text:
            first = one
            break
    why = "" if text else f"no script of {LINES} lines showed it again: it depends on calls before it, or on chance"
    found = without_script(group, shown, trials, why)
    return found._replace(trial=trials[first.number].name, message=first.message, reproduction=text)


def without_script(group: str, shown: list[Shown], trials: list[Trial], why: str) -> Finding:
    """The finding of a group, as its first trial shows it.

    Args:
        group: a key of ``GROUPS``.
        shown: the trials that show it; there is at least one.
        trials: all, by number.
        why: there is no script.
    """
    said = [f"{trials[one.number].name}: {one.message}" for one in shown]
    return Finding(group, trials[shown[0].number].name, shown[0].message, len(shown), "", why, said)


def _saved(trial: Trial, case: Case, folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name.replace(" ", "-")
    torch.save(trial.variant.make(case).tensors, file)
    return file
