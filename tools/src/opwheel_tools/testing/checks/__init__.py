"""What must hold for every operator, whatever its class: checks of one declared sample each.

A check is given an overload and :class:`Samples`, and raises ``AssertionError`` with what is wrong. Nothing in here
knows an operator: everything is compared with the operator's reference, with a loop, or with the claim of its rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

import torch
from opwheel.dispatch import overloads_of
from opwheel.dispatch.overload import Overload

from ...opinfo import OpInfo
from ...opinfo.lookup import register_op_infos
from ..guarded_memory import why_not
from .agreement import run_reference
from .applicable import DeclarationError, NotApplicableError, shown
from .cases import Samples, declared, dtypes_of, wide_dtype
from .derivatives import first_derivatives, forward_mode, functional_transforms, second_derivatives
from .empty import empty
from .invariance import CHECK_OF, PROOFS, claim_of
from .invariance import not_tried as claim_not_tried
from .kernels import (
    aliases,
    bounds,
    errors,
    freed,
    growth,
    large_numbers,
    layouts,
    many_rows,
    repeatable,
    values,
    versions,
)
from .narrow import DTYPES as NARROW
from .narrow import values_in_16_bits
from .tracing import autocast, compiled, fake, opcheck, shardings
from .vmap import vmap

__all__ = [
    "CHECKS",
    "COMPILE",
    "OF_THE_KERNEL_ALONE",
    "Samples",
    "cases",
    "check_operators",
    "claim_of",
    "declared",
    "dtypes_called",
    "dtypes_for",
    "dtypes_of",
    "layouts",
    "not_tried",
    "values",
    "wide_dtype",
]

Check = Callable[[Overload, Samples], None]

# In every dtype of the samples, and in one where derivatives are compared.
IN_EVERY_DTYPE: dict[str, Check] = {
    "values": values,
    "layouts": layouts,
    "bounds": bounds,
    "fake": fake,
}
IN_16_BITS: dict[str, Check] = {"values in 16 bits": values_in_16_bits}
IN_ONE_DTYPE: dict[str, Check] = {
    "empty": empty,
    "many rows": many_rows,
    "large numbers": large_numbers,
    "repeatable": repeatable,
    "aliases": aliases,
    "versions": versions,
    "freed": freed,
    "growth": growth,
    "errors": errors,
    "opcheck": opcheck,
    "second derivatives": second_derivatives,
    "first derivatives": first_derivatives,
    "forward mode": forward_mode,
    "torch.func": functional_transforms,
    "vmap": vmap,
    "autocast": autocast,
    "shardings": shardings,
    "compiled": compiled,
}


def _noting(check: Check) -> Check:
    """The check, which notes with the samples what it could not try, and says when a declared sample is wrong."""

    @functools.wraps(check)
    def make(overload: Overload, samples: Samples) -> None:
        try:
            check(overload, samples)
        except NotApplicableError as reason:
            samples.is_left_out = True
            samples.left_out.append(str(reason))
        except Exception as error:
            _check_declaration(overload, samples, error)
            raise

    return make


def _check_declaration(overload: Overload, samples: Samples, error: Exception) -> None:
    """Find out whether a check fails because the reference does not take the sample."""
    try:
        run_reference(overload, samples.values())
    except Exception as refusal:
        raise DeclarationError(
            f"the reference raises {shown(refusal)} on this sample, which is declared in OpInfo(samples=...): correct "
            "the reference, or leave the sample out"
        ) from error


CHECKS = {name: _noting(check) for name, check in (IN_EVERY_DTYPE | IN_16_BITS | IN_ONE_DTYPE | PROOFS).items()}
COMPILE = frozenset({"compiled", CHECK_OF["compiled"]})
# These call no derivative.
OF_THE_KERNEL_ALONE = frozenset(IN_EVERY_DTYPE) | {
    *("many rows", "large numbers", "repeatable", "aliases", "versions", "growth", "errors"),
    *(check for claim, check in CHECK_OF.items() if claim not in ("grad", "compiled")),
}


def not_tried(check: str, device: torch.device) -> str:
    """Why a check cannot be made on a device; empty if it can."""
    if check in ("bounds", "growth") and device.type != "cpu":
        return f"it watches the memory of a CPU, not that of {device.type}"
    if check == "bounds" and (reason := why_not()):
        return f"memory cannot be guarded: {reason}"
    return claim_not_tried(check, device)


def dtypes_for(overload: Overload, check: str) -> tuple[torch.dtype, ...]:
    """The dtypes of the samples that a check is made with; none for what the operator does not claim."""
    claim = claim_of(check)
    if claim is not None and claim not in overload.operator.invariant:
        return ()
    if claim == "compiled":
        return dtypes_of(overload)[:1]
    if check in IN_EVERY_DTYPE or claim is not None:
        return dtypes_of(overload)
    if check in IN_16_BITS:
        return tuple(dtype for dtype in dtypes_of(overload) if dtype in NARROW)
    if check in ("autocast", "large numbers"):
        return dtypes_of(overload)[:1]
    numbers = (wide_dtype(overload), torch.complex128) if torch.complex128 in dtypes_of(overload) else ()
    return tuple(dict.fromkeys(numbers)) or (wide_dtype(overload),)


def dtypes_called(overload: Overload, check: str, sample_dtype: torch.dtype) -> tuple[torch.dtype, ...]:
    """The dtypes that a check calls the kernel in, with samples of one."""
    return dtypes_of(overload) if check == "autocast" else (sample_dtype,)


def cases(overload: Overload, device: torch.device) -> Iterator[tuple[str, Samples]]:
    """Every check that can be made on the device, with every sample that it is made with."""
    for name in CHECKS:
        if not_tried(name, device):
            continue
        for dtype in dtypes_for(overload, name):
            for index in range(len(declared(overload, dtype, device))):
                yield name, Samples(overload, index, dtype, device)


def check_operators(
    namespace: str,
    infos: Mapping[str, OpInfo] | None = None,
    device: str = "cpu",
    *,
    untested: Iterable[str] = (),
) -> list[str]:
    """Make every check with every sample of a namespace's operators, also of those that no package is made of.

    For tests of operators that :func:`opwheel.dispatch.register_python` has registered; packages have the kit.

    Args:
        namespace: of the operators.
        infos: by the operators' names, the calls to make and what else tests need to know; None: what was registered by
            :func:`opwheel_tools.opinfo.lookup.register_op_infos`, or is in the package's module ``opinfos``.
        device: of the samples' tensors.
        untested: names of operators that are left out, such as ``"f"`` and ``"f.out"``: those without samples.

    Returns:
        What was left out, and why: inputs that the kit made and the reference refuses, and checks that do not apply.

    Raises:
        AssertionError: naming the check, the sample and what is wrong.
        ValueError: an operator has no samples, so that nothing would be checked, or ``infos`` or ``untested`` name
            none. No check has been made then.
        KeyError: nothing registered the namespace.
        OpInfosError: the package's module ``opinfos`` is not right.
    """
    overloads = overloads_of(torch.library.Library(namespace, "FRAGMENT"))
    if infos is not None:
        register_op_infos(namespace, infos)
    left_out = set(untested)
    if unknown := left_out - set(overloads):
        raise ValueError(f"{namespace} has no operators {sorted(unknown)}; it has {', '.join(overloads)}")
    found = {name: list(cases(one, torch.device(device))) for name, one in overloads.items() if name not in left_out}
    if without := [name for name, its_cases in found.items() if not its_cases]:
        raise ValueError(
            f"{namespace}: {', '.join(without)} cannot be checked: no samples are declared; give them by "
            f"OpInfo(samples=...), or leave them out with untested={without}"
        )
    unmade: list[str] = []
    for check, samples in chain.from_iterable(found.values()):
        try:
            CHECKS[check](samples.overload, samples)
        except Exception as error:
            raise AssertionError(f"{check} of {samples!r}: {error}") from error
        unmade += [f"{check} of {samples!r}: {reason}" for reason in samples.left_out]
    return unmade
