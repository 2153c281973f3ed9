"""The rule for operators on the last dimensions: norms, softmax over the last dimension, row-wise quantisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .opaque import Opaque
from .rule import refuse

if TYPE_CHECKING:
    from ..overload import Overload


class Rows(Opaque):
    """Claims that leading dimensions are free: what is computed for one row does not depend on the others.

    Args:
        **own: for each argument with free dimensions the number of its last dimensions that belong to the operator. The
            leading ones are the same for all of them, and every result begins with them. Arguments that are not named
            are shared by all rows.

    ``Rows(x=1)``: ``vmap`` over ``x`` is one call with one more leading dimension, and DTensor may shard ``x`` along
    leading dimensions. Everything else is as for :class:`Opaque`.
    """

    has_batches = True

    def __init__(self, **own: int) -> None:
        self.own = own

    def __repr__(self) -> str:
        return f"Rows({', '.join(f'{name}={count}' for name, count in self.own.items())})"

    def check(self, overload: Overload) -> None:
        """Refuse arguments that are not one tensor, and operators that write."""
        super().check(overload)
        plain = {a.name for a in overload.schema.arguments if str(a.real_type) == "Tensor"}
        if not self.own:
            refuse(overload, "Rows() names no argument", "name those with free dimensions, such as Rows(x=1)")
        for name in self.own:
            if name not in plain:
                refuse(overload, f"{self!r}: '{name}' is not a Tensor argument", "name those that are")
        if overload.mutates:
            refuse(overload, f"{self!r}: an operator that writes has no free dimensions", "declare it Opaque()")

    def vmap(self, overload: Overload, size: int, in_dims: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        """One call, where nothing but arguments with free dimensions is batched."""
        moved = list(values)
        for i, (name, dim) in enumerate(zip(overload.names, in_dims, strict=True)):
            is_batched = any(d is not None for d in dim) if isinstance(dim, (list, tuple)) else dim is not None
            if name in self.own:
                if is_batched:
                    moved[i] = values[i].movedim(dim, 0)
                else:
                    moved[i] = values[i].expand(size, *values[i].shape)
            elif is_batched:
                return None
        positions = {i: self.own[name] for i, name in enumerate(overload.names) if name in self.own}
        free = {moved[i].shape[: max(0, moved[i].dim() - own)] for i, own in positions.items()}
        if len(free) > 1 or not next(iter(free)):
            return None  # examples that are not rows of one another: the reference says what to do about that
        count = len(overload.schema.returns)
        return overload.call(overload.op, tuple(moved)), (0,) * count if count > 1 else 0

    def batches(self, overload: Overload, values: tuple[Any, ...]) -> list[dict[str, int]]:
        """The leading dimensions."""
        named = dict(zip(overload.names, values, strict=True))
        free = min(named[name].dim() - own for name, own in self.own.items())
        return [dict.fromkeys((*self.own, *overload.result_names), dim) for dim in range(free)]

    def placements(self, overload: Overload) -> tuple[str, ...]:
        """Any one of the leading dimensions."""
        free = ", ".join(f"{name}=S(:-{own})" if own else f"{name}=S(:)" for name, own in self.own.items())
        return (f"{free} -> {', '.join(['S(:)'] * len(overload.schema.returns))}",)
