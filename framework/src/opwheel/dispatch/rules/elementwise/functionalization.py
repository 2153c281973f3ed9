"""What the kernel at the Functionalize key does: compute functionally, then let the target stand for the result.

torch.compile, torch.export and torch.func.functionalize remove mutation from the graph. Of custom operators they accept
only those whose results carry no alias annotation, or (from torch 2.13 on) a tag that the stable ABI cannot give. With
this kernel in-place and out variants work everywhere (docs/decisions/0004-functionalization.md).
"""

from __future__ import annotations

from typing import Any

from ...._torch import private
from ...overlap import check_elements_apart
from ...overload import Overload
from ...tensor_iterator import check_output, has_shape


def compute_functionally(
    overload: Overload, functional: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call of an in-place or out variant, in terms of the functional one."""
    result = functional.op(*args)
    target = overload.mutated(args, kwargs)
    check_output(overload, target, result.shape, result.dtype, result.device)
    check_elements_apart(overload, target)
    if not has_shape(target, result.shape):
        if private.is_functional_view(target):
            raise RuntimeError(
                f"{overload.name}: '{overload.target}' is an empty part of another tensor, which cannot be resized "
                "under functionalization; pass an empty tensor of its own, or one of the result's shape"
            )
        target.resize_(result.shape)
    # What PyTorch's own in-place operators do here. A copy_ would stay in the graph, and has no derivative there.
    private.replace_functional(target, result)
    return target
