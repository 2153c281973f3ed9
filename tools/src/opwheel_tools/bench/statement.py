"""An implementation's statement on a case, checked and ready to be timed."""

from __future__ import annotations

import timeit
from typing import Any, Protocol

import torch
from opwheel.memory.usage import give_back, resident

from .checking import check
from .suite import Case, Form, Implementation, Operands, Suite


class Statement(Protocol):
    """What is timed, in this process or in another one."""

    def timeit(self, number: int) -> float:
        """Seconds that so many runs take."""
        ...

    def resident_bytes(self) -> int | None:
        """What one run adds to the memory of its process; None where the system does not tell."""
        ...


class LocalStatement:
    """In this process."""

    def __init__(self, suite: Suite, implementation: Implementation, case: Case, operands: Operands) -> None:
        """Check it: raises UnavailableError, WrongResultError, and whatever the implementation raises."""
        self._code = compile(implementation.statements[case.form], implementation.name, "eval")
        self._names: dict[str, Any] = {
            "torch": torch,
            **suite.names,
            **operands.names,
            **implementation.setup(case, operands),
        }
        self._has_grad = case.form is not Form.NO_GRAD
        with torch.set_grad_enabled(self._has_grad):
            check(suite, implementation, case, operands, self._code, self._names)
        self._timer = timeit.Timer(implementation.statements[case.form], globals=self._names)

    def timeit(self, number: int) -> float:
        """Seconds that so many runs take."""
        with torch.set_grad_enabled(self._has_grad):
            return self._timer.timeit(number)

    def resident_bytes(self) -> int | None:
        """What one run adds to the memory of this process, its result included."""
        give_back()
        before = resident()
        with torch.set_grad_enabled(self._has_grad):
            kept = eval(self._code, self._names)  # noqa: S307  # a statement of the suite
        after = resident()
        del kept
        return None if before is None or after is None else after - before
