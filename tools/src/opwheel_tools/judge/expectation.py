"""What results must be: the reference in float64, and how far from it a result may be.

Nobody gives a tolerance. The reference, evaluated by PyTorch in the dtype of the inputs, there and at inputs nearby, is
off by some multiple of the units of :mod:`opwheel_tools.judge.rounding`; a candidate may be off by ``FACTOR`` times the
largest of these, or by ``FACTOR`` units, and by anything where the reference jumps. Intermediate results move by their
rounding, as inputs do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from .cases import Case
from .intermediates import Rounding
from .programs import DERIVATIVES, Program, moving, with_memory
from .rounding import FACTOR, TINY, is_moved, jumps, largest_error, moved, unit_of, wide_dtype
from .subjects import Subject

_DRAWS = 6
_MOST = 1_000_000  # elements of results, which are computed 18 times
_INSTEAD = (0.0, 3.0, -1000.0)  # of nan; what depends on it is not the same with all of them

Expected = dict[str, Any]


class RefusedByReference(Exception):  # noqa: N818  # no error: the trial says nothing
    """The reference raises."""

    code = None


def expect(
    program: Program,
    numbers: tuple[int, ...],
    subject: Subject,
    case: Case,
    *,
    are_exact: bool = False,
    is_given: bool = False,
) -> list[Expected]:
    """What a program is to give.

    Args:
        program: the way to call.
        numbers: its parameters.
        subject: the reference.
        case: the call.
        are_exact: whether inputs beside wider ones are exact, and do not move by a unit in their last places.
        is_given: whether the call is one that was given, whose results are compared however large they are.

    Returns:
        For each tensor ``want`` (float64, or the integers), ``unit``, ``own`` (the reference's own, in the dtype of
        the inputs), ``allowed`` (in units), ``own_error`` (in units), ``jumps`` (where it may be anything), ``is_wide``
        (whether ``want`` is computed in float64). None where it gives None.

    Raises:
        RefusedByReference: the reference does not take these inputs, or the results of a varied call are too large.
    """
    want_of = program.want or program.run
    own_of = program.own or want_of
    try:
        own = own_of(case.function(subject.function), _fresh(case.tensors), *numbers)
    except Exception as error:
        raise RefusedByReference(f"{type(error).__name__}: {error}") from error
    if not is_given and (elements := sum(x.numel() for x in own if x is not None)) > _MOST:
        raise RefusedByReference(f"the results have {elements} elements, more than {_MOST}")
    if any(_has(x.isinf) for x in case.tensors):
        own = _with_lost(own, lambda: own_of(case.function(subject.function), _fresh(case.tensors), *numbers))
    dtype = torch.bfloat16 if program.own is not None else None
    try:
        callee = case.function(subject.in_float64)
        want, is_wide = want_of(callee, _in_float64(case.tensors), *numbers), True
    except Exception:  # whatever the reference raises
        callee = case.function(subject.function)
        want, is_wide = own, False
    steps = [torch.finfo(dtype or _computed_in(x, case.tensors)).eps if is_moved(x) else 0.0 for x in case.tensors]
    if are_exact:
        steps = [min(step, torch.finfo(torch.float32).eps) for step in steps]
    computed_in = _dtype(case.tensors)
    inside = torch.promote_types(computed_in, torch.float32)  # in which kernels for narrower dtypes compute
    draws = []
    for seed in range(_DRAWS):
        generator = torch.Generator().manual_seed(seed)
        near = [moved(x, step, generator) for x, step in zip(case.tensors, steps, strict=True)]
        with moving(torch.finfo(dtype or computed_in).eps, generator), Rounding(inside, generator):
            one = want_of(callee, _in_float64(near) if is_wide else _fresh(near), *numbers)
        draws.append((one, _or_none(own_of, case.function(subject.function), near, numbers)))
    nearest = [] if max(steps, default=0.0) < TINY else list(_nearest(want_of, callee, case.tensors, numbers, is_wide))
    # Of what a forward operator saves, nan may be one of infinities, as that of a result is.
    has_nan = any(_has_nan(x) for i, x in enumerate(case.tensors) if i not in case.saved)
    found = [
        _expected(
            *(one, own_one, [(a[i], None if b is None else b[i]) for a, b in draws], [a[i] for a in nearest], dtype),
            {"is_wide": is_wide, "has_nan": has_nan},
        )
        for i, (one, own_one) in enumerate(zip(want, own, strict=True))
    ]
    if want_of in DERIVATIVES:
        found = [_with_ties(one, case.tensors[i]) for one, i in zip(found, numbers, strict=True)]
    if any(one["want"] is not None and _has_nan(one["want"]) for one in found) and has_nan:
        without = list(_without_nan(want_of, callee, case.tensors, numbers, is_wide))
        found = [_regardless_of_nan(one, [each[i] for each in without]) for i, one in enumerate(found)]
    narrow = _in_float32(program, numbers, subject, case, are_exact) if dtype is None else None
    return found if narrow is None else [_with_narrow(*both) for both in zip(found, narrow, strict=True)]


def _nearest(
    want_of: Callable[..., Any], callee: Any, tensors: list[Tensor], numbers: tuple[int, ...], is_wide: bool
) -> Iterator[Any]:
    """What the reference gives at inputs that differ by next to nothing: in each direction, and in the opposite one."""
    for seed, sign in product(range(2), (1, -1)):
        generator = torch.Generator().manual_seed(seed)
        given = _in_float64(tensors) if is_wide else tensors
        yield want_of(callee, [moved(x, TINY, generator, sign, breaks_ties=True) for x in given], *numbers)


def _without_nan(
    want_of: Callable[..., Any], callee: Any, tensors: list[Tensor], numbers: tuple[int, ...], is_wide: bool
) -> Iterator[Any]:
    """What the reference gives where numbers stand in the place of nan."""
    for number in _INSTEAD:
        given = [x.nan_to_num(number, torch.inf, -torch.inf) if _has_nan(x) else x.clone() for x in tensors]
        yield want_of(callee, _in_float64(given) if is_wide else given, *numbers)


def _regardless_of_nan(expected: Expected, without: list[Tensor | None]) -> Expected:
    """An element that is nan of 0 times nan alone, as of a key that is masked, may as well be a number."""
    want = expected["want"]
    numbers = [one.detach() for one in without if one is not None and want is not None and one.shape == want.shape]
    if len(numbers) < len(_INSTEAD) or not _has_nan(want):
        return expected
    first, *others = (one.to(want.dtype) for one in numbers)
    is_free = want.isnan() & first.isfinite()
    for one in others:
        is_free &= one == first
    jumping = _jumping(expected["unit"], expected["jumps"] | is_free)
    return {**expected, **jumping, "want": torch.where(is_free, first, want)}


def _with_ties(expected: Expected, x: Tensor) -> Expected:
    """The derivative by x, which may be anything at each number that is the same as one at which it jumps.

    Of many equal numbers, a few are the largest ones; which, is for the kernel to choose.
    """
    if expected["want"] is None or x.is_complex() or not bool(expected["jumps"].any()):
        return expected
    x = x.double()
    return {**expected, **_jumping(expected["unit"], torch.isin(x, x[expected["jumps"]]))}


def _is_without_subnormal_numbers() -> bool:
    """What :func:`torch.set_flush_denormal` was last given, which PyTorch does not tell."""
    smallest = torch.tensor(2.0**-149, dtype=torch.float32)
    return not bool(smallest * 1)


def _with_lost(own: list[Tensor | None], again: Callable[[], list[Tensor | None]]) -> list[Tensor | None]:
    """The reference's own results, nan where they are that without subnormal numbers: 0 times an infinity.

    Args:
        own: with them.
        again: computes them once more.
    """
    was_without = _is_without_subnormal_numbers()
    if not torch.set_flush_denormal(True):
        return own  # the processor has no such way to compute
    try:
        lost = again()
    finally:
        torch.set_flush_denormal(was_without)
    return [
        a if a is None or b is None or a.shape != b.shape or not _has_nan(b) else torch.where(b.isnan(), b, a)
        for a, b in zip(own, lost, strict=True)
    ]


def _has(what: Callable[[], Tensor]) -> bool:
    return bool(what().any())


def _has_nan(x: Tensor) -> bool:
    return x.is_floating_point() and _has(x.isnan)


def _in_float32(
    program: Program, numbers: tuple[int, ...], subject: Subject, case: Case, are_exact: bool
) -> list[Expected] | None:
    """For inputs in float64, where the reference cannot tell its own error and where it jumps: both in float32."""
    if not any(x.dtype is torch.float64 for x in case.tensors):
        return None
    tensors = [x.float() if x.dtype is torch.float64 else x for x in case.tensors]
    try:
        return expect(program, numbers, subject, case._replace(tensors=tensors), are_exact=are_exact)
    except RefusedByReference:
        return None


def _with_narrow(expected: Expected, narrow: Expected) -> Expected:
    if not expected.get("allowed") or not narrow.get("allowed"):
        return expected
    return {**expected, **_limits(narrow["own_error"]), **_jumping(expected["unit"], narrow["jumps"])}


def _limits(own_error: float) -> Expected:
    return {"own_error": own_error, "allowed": FACTOR * max(1.0, own_error)}


def _jumping(unit: Tensor, where: Tensor) -> Expected:
    return {"jumps": where, "unit": torch.where(where, torch.inf, unit)}


def _fresh(tensors: list[Tensor]) -> list[Tensor]:
    return [x.clone() for x in tensors]


def _in_float64(tensors: list[Tensor]) -> list[Tensor]:
    return [x.to(wide_dtype(x), copy=True) for x in tensors]


def _dtype(tensors: list[Tensor]) -> torch.dtype:
    return next((_computed_in(x, tensors) for x in tensors if x.is_floating_point() or x.is_complex()), torch.float32)


def _computed_in(x: Tensor, tensors: list[Tensor]) -> torch.dtype:
    """The dtype that a tensor may be computed in: float32 for float64 beside narrower ones."""
    is_mixed = any(one.is_floating_point() and one.dtype is not torch.float64 for one in tensors)
    return torch.float32 if x.dtype is torch.float64 and is_mixed else x.dtype


def _or_none(run: Callable[..., Any], *args: Any) -> Any:
    function, tensors, numbers = args
    try:
        return run(function, _fresh(tensors), *numbers)
    except Exception:  # whatever the reference raises
        return None


def _expected(
    want: Tensor | None,
    own: Tensor | None,
    draws: list[tuple[Tensor | None, Tensor | None]],
    nearest: list[Tensor | None],
    dtype: torch.dtype | None,
    common: Expected,
) -> Expected:
    if want is None or own is None:
        return {"want": None}
    want, own = with_memory(want), with_memory(own)
    near = [(a.detach(), b) for a, b in draws if a is not None and a.shape == want.shape]
    nearest_to = [a.detach() for a in nearest if a is not None and a.shape == want.shape]
    common = {**common, "own": own, "dtype": str(own.dtype).removeprefix("torch.")}
    if not (want.is_floating_point() or want.is_complex()):
        is_known = own == want if own.shape == want.shape else torch.zeros_like(want, dtype=torch.bool)
        for one in [*(a for a, _ in near), *nearest_to]:
            is_known = is_known & (one == want)
        return {**common, "want": want, "unit": ~is_known, "allowed": 0.0, "own_error": 0.0}
    want = want.to(wide_dtype(want))
    info = torch.finfo(dtype or own.dtype)
    least = info.smallest_normal * info.eps
    if len(near) < _DRAWS:  # its shape depends on numbers
        unit = torch.full_like(want.abs(), torch.inf)
    else:
        unit = unit_of(want, [a.to(want.dtype) for a, _ in near], info.eps, least)
    where = jumps(want, [a.to(want.dtype) for a in nearest_to], unit) if nearest_to else torch.zeros_like(unit) > 0
    common |= _jumping(unit, where)
    own_errors = [
        largest_error(b.detach(), a.to(want.dtype), common["unit"])
        for a, b in [(want, own), *near]
        if b is not None and b.shape == want.shape
    ]
    return {**common, "want": want, **_limits(max(own_errors, default=0.0))}
