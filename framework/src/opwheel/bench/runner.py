"""Measures case after case: make operands, check every peer, time them together."""

from __future__ import annotations

import timeit
from typing import Any

import torch

from .checking import WrongResultError, check
from .results import Measurement, Results, Row
from .sampling import Clock, Precision, Samples, clock_for, sample
from .suite import Case, Form, Operands, Peer, Suite
from .unavailable import UnavailableError


class Runner:
    """Fills the results of one run."""

    def __init__(self, suite: Suite, device: str, peers: list[Peer], precision: Precision, results: Results) -> None:
        self._suite = suite
        self._device = device
        self._peers = peers
        self._precision = precision
        self._results = results
        self._clock: Clock = clock_for(device)
        self._left_out: dict[str, list[str]] = {}  # the cases, by the peer and the reason

    def run(self, case: Case) -> None:
        """Measure one case."""
        with torch.set_grad_enabled(case.form is not Form.NO_GRAD):
            self._run(case, self._suite.operands(case, self._device))

    def _run(self, case: Case, operands: Operands) -> None:
        taking_part, timers = {}, {}
        for peer in self._peers:
            statement = peer.statement(case)
            if statement is not None and (timer := self._prepare(peer, case, operands, statement)) is not None:
                taking_part[peer.name], timers[peer.name] = peer, timer
        if self._suite.ours.name not in timers:
            return  # a finding says why; there is nothing to compare
        measured = sample(timers, self._clock, self._precision)
        peers = {
            name: self._measurement(samples, taking_part[name], case, operands) for name, samples in measured.items()
        }
        self._results.rows.append(
            Row(case.name, case.group, case.form.value, case.layout, case.dtype_name, case.elements, peers)
        )

    def _prepare(self, peer: Peer, case: Case, operands: Operands, statement: str) -> timeit.Timer | None:
        """A timer for a peer that is there and right."""
        try:
            shared = {"torch": torch, **self._suite.names}
            names: dict[str, Any] = {**shared, **operands.names, **peer.setup(case, operands)}
            check(self._suite, peer, case, operands, compile(statement, peer.name, "eval"), names)
        except UnavailableError as error:
            self._note(f"{peer.name} is left out: {error}")
        except WrongResultError as error:
            self._results.findings.append(f"{case.name}: {error}; it is not timed")
        except Exception as error:  # compilers and third-party kernels raise what they like
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            if peer is self._suite.ours:
                self._results.findings.append(f"{case.name}: {peer.name} failed: {reason}")
            else:
                self._leave_out(peer, case, reason)
        else:
            return timeit.Timer(statement, globals=names)
        return None

    def _measurement(self, samples: Samples, peer: Peer, case: Case, operands: Operands) -> Measurement:
        lower, median, upper = samples.quartiles()
        moved = self._suite.bytes(peer, case, operands)
        return Measurement(median, lower, upper, len(samples.seconds), samples.calls, moved, peer.statements[case.form])

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
