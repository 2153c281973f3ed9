"""Calls that operators bring: those that an opwheel library declares, PyTorch's own, or generated from a schema."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import torch
from opwheel.dispatch import Elementwise
from opwheel.dispatch.overload import Overload

from . import calls, declared, saved, subjects
from .cases import Case, CaseError, cases_of
from .generated import generated

_MOST = 2  # calls of one operator
_LARGEST = 20_000  # elements
_SHAPE = (4, 9)  # of the tensors of element-wise operators


def samples_of(operator: str) -> list[Case]:
    """Calls of an operator, ``"namespace::name"`` with or without an overload.

    Raises:
        CaseError: it brings none.
    """
    call = subjects.find(operator)
    torch.manual_seed(0)
    found: list[Case] = []
    for sample in _samples(operator):
        try:
            (case,) = cases_of([sample])
            case.function(call)(*[x.clone() for x in case.tensors])
        except Exception:  # noqa: S112  # of another overload, or with an argument that cannot be written
            continue
        if sum(x.numel() for x in case.tensors) in range(1, _LARGEST):
            found.append(case)
    if not found:
        raise CaseError(f"{operator} brings no calls; name a function that yields tuples of arguments with --inputs")
    different = {str([case.template, [x.shape for x in case.tensors]]): case for case in found}
    chosen = islice(sorted(different.values(), key=_most_elements), _MOST)
    return [saved.made(saved.with_saved(operator, case)) for case in chosen]


def _most_elements(case: Case) -> int:
    return -sum(x.numel() for x in case.tensors)


def _samples(operator: str) -> Iterator[Any]:
    """``SampleInput`` or ``Sample`` objects, or tuples of arguments."""
    if (overload := declared.overload_of(operator)) is not None:
        yield from _declared(overload)
        return
    if operator.startswith("aten::"):
        yield from _of_pytorch(operator.removeprefix("aten::").partition(".")[0])
    yield from _generated(operator)


def _declared(overload: Overload) -> Iterator[Any]:
    from ..opinfo import Sample
    from ..opinfo.lookup import op_info_of
    from ..testing.samples import arguments

    info = op_info_of(overload)
    dtype = (info.dtypes or (torch.float32,))[0]
    if info.samples is not None:
        yield from info.samples("cpu", dtype, False)
    elif isinstance(overload.operator.rule, Elementwise):
        out: dict[str, Any] = {overload.target: torch.zeros(_SHAPE, dtype=dtype)} if overload.is_out else {}
        yield Sample(*arguments(overload, _SHAPE, dtype, "cpu"), **out)


def _of_pytorch(name: str) -> Iterator[Any]:
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds

    for info in op_db:
        if name in (info.name, info.aten_name):
            yield from islice(info.sample_inputs("cpu", torch.float32), 40)


def _generated(operator: str) -> Iterator[Any]:
    names = [operator] if "." in operator else [f"{operator}.{one}" for one in subjects.find(operator).overloads()]
    for call in chain.from_iterable(map(generated, names)):
        yield call.args if not call.kwargs else _Keywords(call)


class _Keywords:
    """A call with keyword arguments, as ``Sample`` has them."""

    def __init__(self, call: calls.Call) -> None:
        self.args, self.kwargs = call.args, call.kwargs
