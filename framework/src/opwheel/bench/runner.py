"""Measures case after case: make operands, check every peer, time them together."""

from __future__ import annotations

import timeit
from typing import Any

import torch

import muladd

from .cases import Case, Form
from .checking import WrongResultError, check
from .operands import Operands, make_operands
from .peers import MULADD, Peer
from .results import Measurement, Results, Row
from .sampling import Clock, Precision, Samples, clock_for, sample
from .unavailable import UnavailableError


class Runner:
    """Fills the results of one run."""

    def __init__(self, device: str, peers: list[Peer], precision: Precision, results: Results) -> None:
        self._device = device
        self._peers = peers
        self._precision = precision
        self._results = results
        self._clock: Clock = clock_for(device)
        self._left_out: dict[str, list[str]] = {}  # the cases, by the peer and the reason

    def run(self, case: Case) -> None:
        """Measure one case."""
        with torch.set_grad_enabled(case.form is not Form.NO_GRAD):
            self._run(case, make_operands(case, self._device))

    def _run(self, case: Case, operands: Operands) -> None:
        taking_part, timers = {}, {}
        for peer in self._peers:
            statement = peer.statement(case)
            if statement is not None and (timer := self._prepare(peer, case, operands, statement)) is not None:
                taking_part[peer.name], timers[peer.name] = peer, timer
        if MULADD.name not in timers:
            return  # a finding says why; there is nothing to compare
        measured = sample(timers, self._clock, self._precision)
        peers = {name: _measurement(samples, taking_part[name], case, operands) for name, samples in measured.items()}
        self._results.rows.append(
            Row(case.name, case.group.value, case.form.value, case.layout, case.dtype_name, case.elements, peers)
        )

    def _prepare(self, peer: Peer, case: Case, operands: Operands, statement: str) -> timeit.Timer | None:
        """A timer for a peer that is there and right."""
        try:
            names: dict[str, Any] = {"torch": torch, "muladd": muladd, **vars(operands), **peer.setup(case, operands)}
            check(peer, case, operands, compile(statement, peer.name, "eval"), names)
        except UnavailableError as error:
            self._note(f"{peer.name} is left out: {error}")
        except WrongResultError as error:
            self._results.findings.append(f"{case.name}: {error}; it is not timed")
        except Exception as error:  # compilers and third-party kernels raise what they like
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            if peer is MULADD:
                self._results.findings.append(f"{case.name}: muladd failed: {reason}")
            else:
                self._leave_out(peer, case, reason)
        else:
            return timeit.Timer(statement, globals=names)
        return None

    def _leave_out(self, peer: Peer, case: Case, reason: str) -> None:
        """One note for all cases with the same reason."""
        cases = self._left_out.setdefault(f"{peer.name}: {reason}", [])

        def text() -> str:
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            return f"{peer.name} is left out of {cases[0]}{more}: {reason}"

        if cases:
            self._results.notes.remove(text())
        cases.append(case.name)
        self._note(text())

    def _note(self, text: str) -> None:
        if text not in self._results.notes:
            self._results.notes.append(text)


def _measurement(samples: Samples, peer: Peer, case: Case, operands: Operands) -> Measurement:
    lower, median, upper = samples.quartiles()
    moved = peer.bytes(case, operands)
    statement = peer.statements[case.form]
    return Measurement(median, lower, upper, len(samples.seconds), samples.calls, moved, statement)
