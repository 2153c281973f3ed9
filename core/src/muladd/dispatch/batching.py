"""vmap: the batch dimension goes to the front of every batched input, and one call computes the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .elementwise import overwrite
from .overload import Overload


def functional_rule(overload: Overload) -> Callable[..., Any]:
    """The batching rule of a functional overload, as torch.library.register_vmap wants it."""
    result_count = len(overload.schema.returns)

    def rule(_info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        result = overload.op(*_aligned(args, in_dims))
        return result, (0,) * result_count if result_count > 1 else 0

    return rule


def in_place_rule(overload: Overload, functional: Overload) -> Callable[..., Any]:
    """The batching rule of an in-place overload, through the functional one."""

    def rule(_info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        if in_dims[0] is None:
            raise RuntimeError(
                f"vmap: {overload.name} would have to write a batch of results into '{overload.arguments[0]}', which "
                "has no batch dimension; use the functional variant, or pass a batched tensor"
            )
        # A copy goes in: a gradient may need what is overwritten below.
        result = functional.op(*_aligned((args[0].clone(), *args[1:]), in_dims))
        overwrite(args[0].movedim(in_dims[0], 0), result)
        return args[0], in_dims[0]

    return rule


def refuse_out(overload: Overload) -> Callable[..., Any]:
    """The kernel of an out variant at FuncTorchBatched."""

    def kernel(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(f"vmap: {overload.name} cannot be batched; use the functional variant")

    return kernel


def _aligned(args: tuple[Any, ...], in_dims: tuple[int | None, ...]) -> list[Any]:
    """Batch dimensions first, and room for broadcasting between them and each input's own dimensions."""
    pairs = list(zip(args, in_dims, strict=True))
    rank = max(value.dim() - (dim is not None) for value, dim in pairs if isinstance(value, Tensor))
    aligned = []
    for value, dim in pairs:
        if dim is None:
            aligned.append(value)
            continue
        front = value.movedim(dim, 0)
        room = (1,) * (rank - (front.dim() - 1))
        aligned.append(front.reshape(front.shape[:1] + room + front.shape[1:]))
    return aligned
