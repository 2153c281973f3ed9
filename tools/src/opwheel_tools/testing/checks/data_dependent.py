"""Operators whose reference needs values, so that it cannot say without them what its results will be."""

from __future__ import annotations

from typing import Any

import torch
from opwheel.dispatch.overload import Overload
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from .agreement import run_reference
from .applicable import NotApplicableError, shown
from .cases import Samples


def on_fake_tensors(values: tuple[Any, ...]) -> tuple[FakeTensorMode, tuple[Any, ...]]:
    """The values with fake tensors of the same sizes, and the mode that they are of."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes: tuple[Any, ...] = pytree.tree_map_only(Tensor, lambda x: mode.from_tensor(x, static_shapes=True), values)
    return mode, fakes


def needs_fake(overload: Overload, samples: Samples) -> str:
    """What to declare, where the operator has no ``fake`` and its reference needs values; else empty."""
    if overload.operator.fake is not None:
        return ""
    mode, given = on_fake_tensors(samples.values())
    try:
        with mode, torch.no_grad():
            run_reference(overload, given)
    except Exception as error:
        return (
            f"the reference cannot say without values which shapes its results have ({shown(error)}), so torch.compile "
            f"and torch.export cannot call the operator. Declare Operator({overload.operator.name!r}, "
            f"fake={_skeleton(overload, samples)}), with new_dynamic_size() for each size that depends on values; "
            "without it the checks opcheck and compiled are left out"
        )
    return ""


def check_has_fake(overload: Overload, samples: Samples) -> None:
    """Leave a check out that traces the operator, where that cannot be done.

    Raises:
        NotApplicableError: the check named fake tells what to declare.
    """
    if needs_fake(overload, samples):
        raise NotApplicableError("it needs Operator(fake=...): see the check 'fake'")


def check_sizes_are_known(overload: Overload, samples: Samples) -> None:
    """Leave a check out that puts results of several calls into one tensor, where their shapes depend on values.

    Raises:
        NotApplicableError: they do.
    """
    if overload.operator.fake is not None or needs_fake(overload, samples):
        raise NotApplicableError("the shapes of results depend on values: those of two examples are no batch")


def _skeleton(overload: Overload, samples: Samples) -> str:
    """Such a function for the operator, whose results have as many dimensions as those of the sample."""
    first = next((overload.names[i] for i in overload.tensor_positions), None)
    made = [
        f"{f'{first}.new_empty' if first else 'torch.empty'}({_sizes(result)}, dtype={result.dtype})"
        for result in run_reference(overload, samples.values())
    ]
    results = made[0] if len(made) == 1 else f"({', '.join(made)})"
    return f"lambda {', '.join(overload.names)}: {results}"


def _sizes(result: Tensor) -> str:
    sizes = ["torch.library.get_ctx().new_dynamic_size()", *map(str, result.shape[1:])] if result.dim() else []
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
