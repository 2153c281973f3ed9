"""Whether an input in float32 beside narrower ones, rounded to their bits, makes a result that is too far off.

What is compared elsewhere may be as far off as the narrower inputs may be, which hides that. Here they are exact: a
result may be off by what PyTorch's own evaluation of the reference is off by on the very inputs, times the factor.
Where a rounded input moves the reference's result by more than twice that, a kernel that is right for both gives two
results.
"""

from __future__ import annotations

from torch import Tensor

from .cases import Case
from .expectation import Expected, RefusedByReference, expect
from .programs import PROGRAMS, rounded_to, values
from .subjects import Subject


def expect_lower_bits(numbers: tuple[int, ...], subject: Subject, case: Case) -> list[Expected]:
    """That results change when an input is rounded.

    Args:
        numbers: which input, and to how many bits.
        subject: the reference.
        case: the call.

    Raises:
        RefusedByReference: rounding the input may be right, or the reference does not take these inputs.
    """
    i, bits = numbers
    expected = expect(PROGRAMS["values"], (), subject, case, are_exact=True)
    if not all(one.get("is_wide", False) for one in expected):
        raise RefusedByReference("the reference does not give its results in float64")
    tensors = [x.double() if x.is_floating_point() else x.clone() for x in case.tensors]
    tensors[i] = rounded_to(tensors[i], bits)
    moved = values(case.function(subject.in_float64), tensors)
    if not any(_is_far(*both) for both in zip(moved, expected, strict=True)):
        raise RefusedByReference(f"input {i} may be rounded to {bits} bits")
    return expect(PROGRAMS["counts_lower_bits"], numbers, subject, case)


def _is_far(moved: Tensor, expected: Expected) -> bool:
    """Whether some element is further from where it was than two right results are from each other."""
    want = expected["want"]
    if moved.shape != want.shape or not want.is_floating_point():
        return False
    return bool(((moved - want).abs() > 2 * expected["allowed"] * expected["unit"]).any())
