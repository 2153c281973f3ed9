"""The claims of an operator about bits (``Operator(invariant=...)``), proved with samples, without tolerance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from opwheel.dispatch.invariance import WITH_DIMENSIONS, dimensions
from opwheel.dispatch.overload import Overload
from opwheel.registry.values import INVARIANCES

from ...invariance.checks import CHECKS, Call, Sizes
from ...invariance.inputs import Numbers
from ...invariance.subject import Subject
from ...opinfo.lookup import op_info_of
from .applicable import DeclarationError, NotApplicableError
from .cases import Samples, declared

CHECK_OF = {name: f"{name} invariance" for name in INVARIANCES}
"""The names of the checks, by the claims' own."""


def claim_of(check: str) -> str | None:
    """The claim that a check is about; None for other checks."""
    return next((name for name, its in CHECK_OF.items() if its == check), None)


def prove(claim: str, overload: Overload, samples: Samples, *, sizes: Sizes = Sizes()) -> None:  # noqa: B008
    """Check a claim with a sample.

    Args:
        claim: its name.
        overload: of the operator.
        samples: one of its samples.
        sizes: how large the arguments are made.

    Raises:
        AssertionError: saying which two calls differ, and where.
        NotApplicableError: the claim says nothing about the sample.
        DeclarationError: it says nothing about any sample.
    """
    if claim not in overload.operator.invariant:
        return
    values = samples.values()
    if claim in WITH_DIMENSIONS:
        cases = dimensions(overload, claim, values)
        if not cases:
            _check_dimensions(claim, overload, samples)
            raise NotApplicableError(f"the claim {claim!r} is about no dimension of this sample")
    else:
        cases = _rows(overload, values)[:1] or [{}]
    subject = Subject(overload.op, overload.result_names, tuple(overload.names[i] for i in overload.written))
    numbers = Numbers(except_for=op_info_of(overload).index_arguments)
    for case in cases:
        call = Call(subject, dict(zip(overload.names, samples.values(), strict=True)), case, numbers, sizes)
        CHECKS[claim](call)
        samples.left_out += call.left_out


def _rows(overload: Overload, values: tuple[object, ...]) -> list[dict[str, int]]:
    """Dimensions of rows that may be more, as the claims name them."""
    return dimensions(overload, "batch", values) if "batch" in overload.operator.invariant else []


def _check_dimensions(claim: str, overload: Overload, samples: Samples) -> None:
    """Find out whether any sample has the dimensions."""
    every = declared(overload, samples.dtype, samples.device)
    if not any(dimensions(overload, claim, overload.bind(one.args, one.kwargs)) for one in every):
        raise DeclarationError(
            f"no sample has the dimensions of invariant={{{claim!r}: {overload.operator.invariant[claim]!r}}}: correct "
            "the claim, or add a sample to OpInfo(samples=...)"
        )


PROOFS: dict[str, Callable[[Overload, Samples], None]] = {
    check: partial(prove, claim) for claim, check in CHECK_OF.items()
}


def not_tried(check: str, device: torch.device) -> str:
    """Why a claim cannot be checked on a device; empty if it can."""
    is_about_threads = claim_of(check) == "threads" and device.type != "cpu"
    return f"the number of threads is a CPU's, not that of {device.type}" if is_about_threads else ""
