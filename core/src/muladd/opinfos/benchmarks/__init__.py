"""What ``muladd bench`` measures: ``a * b + c`` against everything else that computes it."""

from opwheel_tools.bench.suite import Suite

import muladd

from . import cases, implementations
from .operands import make_operands

SUITE = Suite(
    ours=implementations.MULADD,
    baselines=implementations.OTHERS,
    operands=make_operands,
    computes=lambda a, b, c: a * b + c,
    gradients={"a": lambda grad, a, b, c: grad * b, "b": lambda grad, a, b, c: grad * a},  # noqa: ARG005  # by position
    working_set=cases.working_set,
    full=cases.FULL,
    quick=cases.QUICK,
    on_accelerators=cases.ON_ACCELERATORS,
    largest=cases.LARGEST,
    cpu_limit=implementations.TRIAD,
    accelerator_limit=implementations.COPY,
    control="addcmul",
    names={"muladd": muladd},
    module=__name__,
)
