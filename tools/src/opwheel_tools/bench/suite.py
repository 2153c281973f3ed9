"""What a library gives to be measured: cases, their tensors, and statements that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

Names = Mapping[str, object]
OVERHEAD = "overhead"
"""The group of cases so small that what is measured is the cost of a call."""


class Form(str, Enum):
    """Where the result of a call goes, and what else the call does."""

    OUT = "out"
    NEW = "new"
    IN_PLACE = "in-place"
    FORWARD = "forward"
    """With a new result, and inputs that require grad."""
    BACKWARD = "forward+backward"
    NO_GRAD = "no_grad"

    @property
    def makes_result(self) -> bool:
        """Whether a call takes new memory."""
        return self not in (Form.OUT, Form.IN_PLACE)


@dataclass(frozen=True)
class Case:
    """One row of a table."""

    group: str
    form: Form
    layout: str
    dtype: torch.dtype
    elements: int

    @property
    def dtype_name(self) -> str:
        """The dtype without ``torch.``."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def name(self) -> str:
        """Identifies the case in files; stable between versions."""
        return f"{self.group}/{self.form.value}/{self.layout}/{self.dtype_name}/{self.elements}"


@dataclass(frozen=True)
class Plan:
    """Cases of a group: each form on each layout, in each dtype, with each power of two of elements."""

    group: str
    forms: tuple[Form, ...]
    layouts: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    exponents: tuple[int, ...]

    def cases(self) -> Iterator[Case]:
        """In the order of the table."""
        for layout in self.layouts:
            for form in self.forms:
                for dtype in self.dtypes:
                    for exponent in self.exponents:
                        yield Case(self.group, form, layout, dtype, 2**exponent)


@dataclass(frozen=True)
class Operands:
    """The arguments of a case, by the names that statements use for them."""

    inputs: Mapping[str, Any]
    """In the order of the formulas' parameters. The first is what a call in place overwrites."""
    out: Tensor
    """Takes a result."""
    grad: Tensor | None = None
    """The gradient of a result."""

    @property
    def names(self) -> Names:
        """What statements may use."""
        return {**self.inputs, "out": self.out, "grad": self.grad}


def _nothing(case: Case, operands: Operands) -> Names:  # noqa: ARG001  # an interface
    return {}


@dataclass(frozen=True)
class Implementation:
    """One way to compute the result: for each form of a call the statement that a user would write."""

    name: str
    statements: Mapping[Form, str]
    setup: Callable[[Case, Operands], Names] = _nothing
    """What the statements use besides ``torch``, the suite's names and the operands."""
    computes: Callable[..., Tensor] | None = None
    """As the suite's; None: the same."""
    inputs_read: int | None = None
    """How many of the inputs it moves; None: all."""
    groups: frozenset[str] | None = None
    """None: any."""
    layouts: frozenset[str] | None = None
    """None: any."""
    least_elements: int = 0
    """Has no part in smaller cases."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the process that it is timed in: one of its own, if there are any. On the CPU only."""
    preloaded: str = ""
    """A shared library that this process loads before all others, ``"jemalloc"`` for ``libjemalloc.so.2``."""
    explanation: str = ""
    """One line for whoever reads the table."""

    def statement(self, case: Case) -> str | None:
        """What is timed; None where the implementation has no part in the case."""
        if self.groups is not None and case.group not in self.groups:
            return None
        if self.layouts is not None and case.layout not in self.layouts:
            return None
        if case.elements < self.least_elements:
            return None
        return self.statements.get(case.form)


@dataclass(frozen=True)
class Shown:
    """What tables and comparisons want to know of a run."""

    ours_name: str
    """Of the implementation that all others are compared with."""
    limits: frozenset[str] = frozenset()
    """Names of the implementations that no computation beats."""
    control: str = ""
    """An implementation that the library has no part in: where it became slower, the machine did."""
    explanations: Mapping[str, str] = field(default_factory=dict)
    """One line for each implementation that has one."""


@dataclass(frozen=True)
class Suite:
    """Everything that ``bench`` wants to know of a library."""

    ours: Implementation
    """The library's own statements, which all others are compared with."""
    baselines: tuple[Implementation, ...]
    operands: Callable[[Case, str], Operands]
    """The operands of a case on a device."""
    computes: Callable[..., Tensor]
    """The right result of one element, in float64, given all inputs."""
    gradients: Mapping[str, Callable[..., Tensor]]
    """The right gradients by the input's name, of one element, given ``grad`` and all inputs."""
    working_set: Callable[[Case], int]
    """The most bytes that any implementation needs."""
    full: tuple[Plan, ...]
    quick: tuple[Plan, ...]
    on_accelerators: tuple[Plan, ...] = ()
    """Measured before the full ones on other devices than the CPU."""
    largest: Case | None = None
    """Is measured, besides the full plans, with as many elements as fit into memory."""
    cpu_limit: Implementation | None = None
    """What the memory allows at best, on the CPU."""
    accelerator_limit: Implementation | None = None
    """The same on other devices."""
    control: str = ""
    """An implementation that the library has no part in: where it became slower, the machine did."""
    names: Names = field(default_factory=dict)
    """What all statements may use besides ``torch``: the library's module."""
    module: str = ""
    """Where it is called SUITE: processes that time an implementation in another environment import it from there."""

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups, in the order of the tables."""
        return tuple(dict.fromkeys(plan.group for plan in self.full))

    @property
    def shown(self) -> Shown:
        """What tables and comparisons want to know."""
        explanations = {one.name: one.explanation for one in (self.ours, *self.others) if one.explanation}
        return Shown(self.ours.name, self.limits, self.control, explanations)

    @property
    def others(self) -> tuple[Implementation, ...]:
        """What the library is compared with: the baselines, then the limits."""
        return tuple(one for one in (*self.baselines, self.cpu_limit, self.accelerator_limit) if one is not None)

    @property
    def limits(self) -> frozenset[str]:
        """Names of the implementations that no computation beats."""
        return frozenset(one.name for one in (self.cpu_limit, self.accelerator_limit) if one is not None)

    def bytes(self, implementation: Implementation, case: Case, operands: Operands) -> int:
        """What has to move between memory and processor, each tensor once in every pass that needs it."""
        read = list(operands.inputs.values())[: implementation.inputs_read]
        moved = sum(value.numel() for value in read if isinstance(value, Tensor)) + operands.out.numel()
        if case.form is Form.BACKWARD:
            moved += operands.out.numel() + 2 * sum(operands.inputs[name].numel() for name in self.gradients)
        return moved * case.dtype.itemsize
