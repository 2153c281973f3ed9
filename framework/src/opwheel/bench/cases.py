"""What is measured: groups of cases, each a form of call on a layout, in a dtype, at a size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import torch


class Group(str, Enum):
    """What ``--only`` selects."""

    OUT = "out"
    NEW = "new"
    IN_PLACE = "in-place"
    SCALE_SHIFT = "scale-shift"
    STRIDED = "strided"
    BACKWARD = "backward"
    OVERHEAD = "overhead"


class Form(str, Enum):
    """Where the result of a call goes, and what else the call does."""

    OUT = "out"
    NEW = "new"
    IN_PLACE = "in-place"
    BACKWARD = "forward+backward"
    NO_GRAD = "no_grad"


@dataclass(frozen=True)
class Case:
    """One row of a table."""

    group: Group
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
        return f"{self.group.value}/{self.form.value}/{self.layout}/{self.dtype_name}/{self.elements}"

    @property
    def working_set(self) -> int:
        """The most memory that any peer needs: three operands, and a temporary and a result of an expression."""
        streams = 8 if self.form is Form.BACKWARD else 5
        return streams * self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class _Plan:
    group: Group
    forms: tuple[Form, ...]
    layouts: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    exponents: tuple[int, ...]

    def cases(self) -> Iterator[Case]:
        for layout in self.layouts:
            for form in self.forms:
                for dtype in self.dtypes:
                    for exponent in self.exponents:
                        yield Case(self.group, form, layout, dtype, 2**exponent)


_FLAT = ("contiguous",)
_FLAT_FMA = ("three tensors",)
_BROADCAST = ("[B,T,D]*[B,1,D]", "[N,D]*[D], D odd", "[N,C,H,W]*[C,1,1]", "channels-last")
_VIEWS = ("transposed", "sliced", "stepped", "not aligned")
_F32 = (torch.float32,)
_NARROW = (torch.bfloat16, torch.float16)
_OTHERS = (*_NARROW, torch.float64)
_CURVE = (2, 6, 10, 12, 14, 16, 18, 20, 22, 24, 26)
_BEYOND = (28, 30, 32)  # where the memory allows it
_OVERHEAD = _Plan(Group.OVERHEAD, (Form.NO_GRAD, Form.NEW, Form.BACKWARD), _FLAT, _F32, (2,))

_FULL = (
    _Plan(Group.OUT, (Form.OUT,), _FLAT, _F32, (*_CURVE, *_BEYOND)),
    _Plan(Group.OUT, (Form.OUT,), _FLAT, _OTHERS, (14, 20, 24, 26)),
    _Plan(Group.OUT, (Form.OUT,), _FLAT_FMA, _F32, (14, 20, 24)),
    _Plan(Group.NEW, (Form.NEW,), _FLAT, _F32, _CURVE),
    _Plan(Group.NEW, (Form.NEW,), _FLAT, _OTHERS, (14, 20, 24)),
    _Plan(Group.IN_PLACE, (Form.IN_PLACE,), _FLAT, _F32, (10, 16, 20, 24, 26)),
    _Plan(Group.IN_PLACE, (Form.IN_PLACE,), _FLAT, _OTHERS, (24,)),
    _Plan(Group.SCALE_SHIFT, (Form.NEW, Form.OUT), _BROADCAST, (torch.float32, torch.bfloat16), (18, 24)),
    _Plan(Group.STRIDED, (Form.NEW, Form.OUT), _VIEWS, (torch.float32, torch.bfloat16), (18, 24)),
    _Plan(Group.BACKWARD, (Form.BACKWARD,), _FLAT, _F32, (12, 18, 22, 24)),
    _Plan(Group.BACKWARD, (Form.BACKWARD,), _FLAT, _NARROW, (22,)),
    _OVERHEAD,
)
_QUICK = (
    _Plan(Group.OUT, (Form.OUT,), _FLAT, _F32, (2, 10, 16)),
    _Plan(Group.OUT, (Form.OUT,), _FLAT, _OTHERS, (16,)),
    _Plan(Group.OUT, (Form.OUT,), _FLAT_FMA, _F32, (16,)),
    _Plan(Group.NEW, (Form.NEW,), _FLAT, _F32, (16,)),
    _Plan(Group.IN_PLACE, (Form.IN_PLACE,), _FLAT, _F32, (16,)),
    _Plan(Group.SCALE_SHIFT, (Form.NEW,), _BROADCAST, _F32, (16,)),
    _Plan(Group.STRIDED, (Form.OUT,), _VIEWS, _F32, (16,)),
    _Plan(Group.BACKWARD, (Form.BACKWARD,), _FLAT, _F32, (16,)),
    _OVERHEAD,
)
# Accelerators have caches that hold 2^24 elements.
_ON_ACCELERATORS = (
    _Plan(Group.OUT, (Form.OUT,), _FLAT, _OTHERS, (28,)),
    _Plan(Group.OUT, (Form.OUT,), _FLAT_FMA, _F32, (28,)),
    _Plan(Group.NEW, (Form.NEW,), _FLAT, _F32, (28,)),
    _Plan(Group.IN_PLACE, (Form.IN_PLACE,), _FLAT, _F32, (28,)),
    _Plan(Group.SCALE_SHIFT, (Form.NEW, Form.OUT), _BROADCAST, (torch.float32, torch.bfloat16), (28,)),
    _Plan(Group.STRIDED, (Form.OUT,), _VIEWS, (torch.float32, torch.bfloat16), (28,)),
    _Plan(Group.BACKWARD, (Form.BACKWARD,), _FLAT, _F32, (28,)),
)
# Of the free memory: the rest is for the checks, the caches of allocators and whoever else is there.
_MEMORY_SHARE = 0.6


def select(*, device: str, quick: bool, groups: list[Group], memory: int) -> list[Case]:
    """The cases of the groups (none: of all) that fit into ``memory`` bytes, and the largest one that does."""
    full = _FULL if device == "cpu" else (*_ON_ACCELERATORS, *_FULL)
    plans = [plan for plan in (_QUICK if quick else full) if not groups or plan.group in groups]
    cases = [case for plan in plans for case in plan.cases()]
    if not quick and Group.OUT in {plan.group for plan in plans}:
        cases.append(_largest(memory))
    # The largest may be one of the curve's.
    return [case for case in dict.fromkeys(cases) if case.working_set <= memory * _MEMORY_SHARE]


def _largest(memory: int) -> Case:
    one = Case(Group.OUT, Form.OUT, "contiguous", torch.float32, 1)
    elements = int(memory * _MEMORY_SHARE) // one.working_set
    return Case(one.group, one.form, one.layout, one.dtype, 2 ** (elements.bit_length() - 1))
