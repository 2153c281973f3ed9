"""What is tried: a variant of a given call in a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .programs import PROGRAMS, Program
from .variants import Variant

_WITH_GRADIENTS = ("gradients_of_transposed", "gradients_of_sum", "gradients_again")
_BACKWARD = ("incoming_after_backward", "inputs_after_backward")
_DERIVATIVES = ("gradients_after_inputs_changed", "second_derivatives", "tangents")
_COMPILED = ("compiled", "compiled_for_any_size", "compiled_shapes")
_PLAIN = ("without_grad", "in_inference_mode", *_COMPILED, "under_autocast", "in_threads")
_MEMORY = ("in_new_memory", "among_nan", "among_large")
_STATE = ("repeatedly", "after_memory_changed", "after_unseen_change", "after_another_call", "after_many_calls")
_BITS = {torch.float16: 11, torch.bfloat16: 8}  # of a number
_ALONE = 8  # inputs and parameters whose gradients are asked for one at a time


class Trial(NamedTuple):
    """A call to make.

    Args:
        case: which of the given calls it is made from.
        variant: how.
        program: a name in :data:`opwheel_tools.judge.programs.PROGRAMS`.
        numbers: parameters of the program.
    """

    case: int
    variant: Variant
    program: str
    numbers: tuple[int, ...] = ()

    @property
    def way(self) -> Program:
        """The program."""
        return PROGRAMS[self.program]

    @property
    def group(self) -> str:
        """Under which its findings stand: what is other about the call, or about the way to make it."""
        is_plain = self.program in ("values", "gradients")
        return self.variant.group if is_plain and self.variant.group not in ("", "values") else self.way.group

    @property
    def is_misuse(self) -> bool:
        """Whether the call is made with shapes that the reference may not take."""
        return self.program == "inputs_after_failure"

    @property
    def of_derivatives(self) -> bool:
        """Whether what is compared are derivatives of the first order."""
        return self.program.startswith("gradients")

    @property
    def name(self) -> str:
        """In words."""
        program = self.program.replace("_", " ")
        about = f" {', '.join(map(str, self.numbers))}" if self.numbers else ""
        return f"{program}{about}, {self.variant.name}"

    def as_json(self) -> dict[str, Any]:
        """What the processes that run it need to know."""
        return {"program": self.program, "numbers": list(self.numbers), "is_given": self.variant.is_given}


def plain(case: int, variant: Variant, wrt: tuple[int, ...]) -> Iterator[Trial]:
    """The values and, where inputs have gradients, these."""
    yield Trial(case, variant, "values")
    if wrt and variant.is_finite:
        yield Trial(case, variant, "gradients", wrt)


def around(case: int, variant: Variant, wrt: tuple[int, ...]) -> Iterator[Trial]:
    """Another call in the programs that may show something other than they do on the given one."""
    yield from plain(case, variant, wrt)
    if variant.group == "numbers":
        yield Trial(case, variant, "inputs_after_writing_results")
    if variant.group in ("shapes", "dtypes"):
        yield Trial(case, variant, "among_nan")


def every_way(
    case: int, variant: Variant, wrt: tuple[int, ...], ranks: dict[int, int], inputs: int, state: int
) -> Iterator[Trial]:
    """One call in every program.

    Args:
        case: which of the given calls.
        variant: the call.
        wrt: tensors that have gradients.
        ranks: of the inputs along whose dimensions there is vmap.
        inputs: how many tensors are arguments.
        state: how many more are a module's parameters and buffers.
    """
    yield from plain(case, variant, wrt)
    if wrt:
        if len(wrt) > 1:
            yield from (Trial(case, variant, "gradients", (i,)) for i in wrt[:_ALONE])
        names = (*_WITH_GRADIENTS, *_BACKWARD, *_DERIVATIVES, "gradients_among_nan")
        yield from (Trial(case, variant, name, wrt) for name in names)
    yield from (Trial(case, variant, name) for name in (*_PLAIN, *_MEMORY, *_STATE, "inputs_after_writing_results"))
    yield Trial(case, variant, "inputs_after", tuple(range(inputs)))
    if state:
        yield Trial(case, variant, "state_after", tuple(range(inputs, inputs + state)))
    yield from (Trial(case, variant, "vmapped", (i, dim)) for i, rank in ranks.items() for dim in range(rank + 1))


def of_lower_bits(case: int, variant: Variant, dtypes: list[torch.dtype]) -> Iterator[Trial]:
    """Whether inputs beside narrower ones are rounded to their bits, where these are exact and the result is then not.

    Args:
        case: which of the given calls.
        variant: the call.
        dtypes: of its tensors.
    """
    bits = next((_BITS[dtype] for dtype in dtypes if dtype in _BITS), 0)
    for i, dtype in enumerate(dtypes if bits else ()):
        if dtype in (torch.float32, torch.float64):
            yield Trial(case, variant, "counts_lower_bits", (i, bits))


def misuse(case: int, variant: Variant, inputs: int) -> Trial:
    """One call with shapes that do not fit: the last one, as a kernel that does not check them may write anywhere.

    Args:
        case: which of the given calls.
        variant: the call.
        inputs: how many tensors are arguments.
    """
    return Trial(case, variant, "inputs_after_failure", tuple(range(inputs)))
