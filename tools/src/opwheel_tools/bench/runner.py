"""Measures case after case: make operands, check every implementation, time them together."""

from __future__ import annotations

from opwheel.memory.usage import give_back

from .checking import WrongResultError
from .other_process import OtherProcess
from .results import Measurement, Results, Row
from .sampling import Clock, Precision, Samples, clock_for, sample
from .statement import LocalStatement, Statement
from .suite import Case, Implementation, Operands, Suite
from .unavailable import UnavailableError


class Runner:
    """Fills the results of one run."""

    def __init__(
        self, suite: Suite, device: str, implementations: list[Implementation], precision: Precision, results: Results
    ) -> None:
        self._suite = suite
        self._device = device
        self._implementations = implementations
        self._precision = precision
        self._results = results
        self._clock: Clock = clock_for(device)
        self._left_out: dict[str, list[str]] = {}  # the cases, by the implementation and the reason
        self._processes: dict[tuple[object, ...], OtherProcess] = {}  # by what they preload, and their variables

    def run(self, case: Case) -> None:
        """Measure one case."""
        operands = self._suite.operands(case, self._device)
        taking_part: dict[str, Implementation] = {}
        statements: dict[str, Statement] = {}
        for implementation in self._implementations:
            if implementation.statement(case) is None:
                continue
            if (statement := self._prepare(implementation, case, operands)) is not None:
                taking_part[implementation.name], statements[implementation.name] = implementation, statement
        if self._suite.ours.name in statements:  # otherwise a finding says why; there is nothing to compare
            give_back()  # of earlier cases, so that each begins with the same allocators
            measured = sample(statements, self._clock, self._precision)
            resident = {
                name: statement.resident_bytes() if case.form.makes_result and self._device == "cpu" else None
                for name, statement in statements.items()
            }
            measurements = {
                name: self._measurement(samples, resident[name], taking_part[name], case, operands)
                for name, samples in measured.items()
            }
            self._results.rows.append(
                Row(case.name, case.group, case.form.value, case.layout, case.dtype_name, case.elements, measurements)
            )
        for process in self._processes.values():
            process.forget()

    def close(self) -> None:
        """End the processes that were started for implementations."""
        for process in self._processes.values():
            process.close()

    def _prepare(self, implementation: Implementation, case: Case, operands: Operands) -> Statement | None:
        """The statement of an implementation that is there and right."""
        try:
            if implementation.environment or implementation.preloaded:
                return self._process(implementation).prepare(implementation, case)
            return LocalStatement(self._suite, implementation, case, operands)
        except UnavailableError as error:
            self._note(f"{implementation.name} is left out: {error}")
        except WrongResultError as error:
            self._results.findings.append(f"{case.name}: {error}; it is not timed")
        except Exception as error:  # compilers and third-party kernels raise what they like
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            if implementation is self._suite.ours:
                self._results.findings.append(f"{case.name}: {implementation.name} failed: {reason}")
            else:
                self._leave_out(implementation, case, reason)
        return None

    def _process(self, implementation: Implementation) -> OtherProcess:
        if self._device != "cpu":
            raise UnavailableError("it is timed in a process of its own, which has only the CPU's clock")
        key = (implementation.preloaded, *sorted(implementation.environment.items()))
        if key not in self._processes:
            self._processes[key] = OtherProcess(self._suite, implementation.environment, implementation.preloaded)
        return self._processes[key]

    def _measurement(
        self, samples: Samples, resident: int | None, implementation: Implementation, case: Case, operands: Operands
    ) -> Measurement:
        lower, median, upper = samples.quartiles()
        moved = self._suite.bytes(implementation, case, operands)
        statement = implementation.statements[case.form]
        return Measurement(median, lower, upper, len(samples.seconds), samples.calls, moved, statement, resident)

    def _leave_out(self, implementation: Implementation, case: Case, reason: str) -> None:
        """One note for all cases with the same reason."""
        cases = self._left_out.setdefault(f"{implementation.name}: {reason}", [])

        def text() -> str:
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            return f"{implementation.name} is left out of {cases[0]}{more}: {reason}"

        if cases:
            self._results.notes.remove(text())
        cases.append(case.name)
        self._note(text())

    def _note(self, text: str) -> None:
        if text not in self._results.notes:
            self._results.notes.append(text)
