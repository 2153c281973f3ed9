"""Which placements can be right at all, by what each result depends on: each argument is looked at alone.

Where a result is shared out, the second half of what an argument has along a dimension may not change its first half.
Where it is a sum over processes, halves of an argument that is shared out add up independently, and it is affine in an
argument that is such a sum itself. What passes here is tried; what fails cannot be right together with anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from opwheel.dispatch.overload import Overload
from torch import Tensor

from .parts import shared_dim
from .simulation import PLACEMENTS_OF_PARTIAL, Compute, outcome

Possible = dict[str, list[set[str]]]
"""For each placement of a result the placements that each tensor may have."""


class Candidates:
    """What may be right for one call.

    Args:
        overload: that is called.
        compute: how.
        values: of all arguments.
        partial_alone: whether to leave out what is shared out.

    Attributes:
        whole: what the call gives.
        positions: of the arguments that are tensors.
        unused: those of them on which nothing depends. The reference computes anew what they are, and a kernel may take
            it from them: none is a sum over processes.
    """

    def __init__(
        self, overload: Overload, compute: Compute, values: tuple[Any, ...], *, partial_alone: bool = False
    ) -> None:
        self._overload, self._compute, self._values = overload, compute, values
        self.positions = [i for i in overload.tensor_positions if isinstance(values[i], Tensor)]
        self.whole = outcome(overload, compute, values)
        self._generator = torch.Generator().manual_seed(1)
        self._placements = {
            i: [
                *(f"S({dim})" for dim, size in enumerate(values[i].shape) if size > 1 and not partial_alone),
                *(PLACEMENTS_OF_PARTIAL if values[i].is_floating_point() and i not in overload.written else ()),
            ]
            for i in self.positions
        }
        changes = [[self._changes(k, i) for i in self.positions] for k in range(len(self.whole))]
        self.unused = [i for n, i in enumerate(self.positions) if not any(every[n] for every in changes)]
        for i in self.unused:
            self._placements[i] = [one for one in self._placements[i] if one not in PLACEMENTS_OF_PARTIAL]
        self.possible = [self._of_result(k, changes[k]) for k in range(len(self.whole))]

    def assignments(self) -> Iterator[dict[int, str]]:
        """Every placement of the arguments that no result excludes, but that all of them are whole."""
        yield from self._extended({}, [list(range(len(possible))) for possible in self.possible])

    def _extended(self, chosen: dict[int, str], alive: list[list[int]]) -> Iterator[dict[int, str]]:
        if len(chosen) == len(self.positions):
            if any(placement != "R" for placement in chosen.values()):
                yield dict(chosen)
            return
        index = len(chosen)
        i = self.positions[index]
        for placement in ("R", *self._placements[i]):
            left = [
                [way for way in ways if placement in list(possible.values())[way][index]]
                for ways, possible in zip(alive, self.possible, strict=True)
            ]
            if all(left):
                yield from self._extended({**chosen, i: placement}, left)

    def _of_result(self, k: int, changes: Sequence[bool]) -> Possible:
        shape, every = self.whole[k].shape, [{"R", *self._placements[i]} for i in self.positions]
        free = [not one for one in changes]
        ways: Possible = {"R": [all_ if is_free else {"R"} for all_, is_free in zip(every, free, strict=True)]}
        if not self.whole[k].numel():
            return {"R": every}
        for dim in range(len(shape)):
            if shape[dim] > 1:
                ways[f"S({dim})"] = [
                    all_ if is_free else {"R", *(p for p in all_ if self._keeps_apart(k, i, p, dim))}
                    for i, all_, is_free in zip(self.positions, every, free, strict=True)
                ]
        if self.whole[k].is_floating_point():
            adds_up = [
                all_ if is_free else {"R", *(p for p in all_ - {"R"} if self._adds_up(k, i, p))}
                for i, all_, is_free in zip(self.positions, every, free, strict=True)
            ]
            ways |= dict.fromkeys(PLACEMENTS_OF_PARTIAL, adds_up)
        return ways

    def _with(self, i: int, tensor: Tensor) -> list[Tensor] | None:
        """What a call with another tensor gives; None where the operator refuses it."""
        try:
            return outcome(self._overload, self._compute, (*self._values[:i], tensor, *self._values[i + 1 :]))
        except Exception:
            return None

    def _other(self, tensor: Tensor) -> Tensor:
        """Other values of the same kind."""
        if tensor.is_floating_point():
            return tensor + torch.randn(tensor.shape, generator=self._generator, dtype=tensor.dtype)
        order = torch.randperm(tensor.numel(), generator=self._generator)
        return tensor.flatten()[order].reshape(tensor.shape)

    def _changes(self, k: int, i: int) -> bool:
        for _ in range(3):
            changed = self._with(i, self._other(self._values[i]))
            if changed is None or not _same(changed[k], self.whole[k]):
                return True
        return False

    def _keeps_apart(self, k: int, i: int, placement: str, dim: int) -> bool:
        of = shared_dim(placement)
        if of is None:
            return False
        tensor, other = self._values[i], self._other(self._values[i])
        for first in (True, False):
            mixed = self._with(i, _mixed(tensor, other, of, first=first))
            if mixed is None:
                continue
            chunks = mixed[k].chunk(2, dim), self.whole[k].chunk(2, dim)
            kept = 1 if first else 0
            if mixed[k].shape != self.whole[k].shape or not _same(chunks[0][kept], chunks[1][kept]):
                return False
        return True

    def _adds_up(self, k: int, i: int, placement: str) -> bool:
        """Whether the second difference over four tensors, the corners of a square, is zero."""
        of, tensor = shared_dim(placement), self._values[i]
        other = self._other(tensor)
        if of is not None:
            corners = [tensor, _mixed(tensor, other, of, first=True), _mixed(tensor, other, of, first=False), other]
        else:
            another = self._other(tensor)
            corners = [tensor, other, another, other + another - tensor]
        found = [outcomes[k] for one in corners if (outcomes := self._with(i, one)) is not None]
        if len(found) < len(corners) or any(one.shape != self.whole[k].shape for one in found):
            return True
        scale = max(float(one.abs().nan_to_num(0, 0, 0).max()) for one in found)
        return torch.allclose(
            found[0] + found[3], found[1] + found[2], rtol=1e-7, atol=1e-7 * max(scale, 1e-3), equal_nan=True
        )


def _mixed(tensor: Tensor, other: Tensor, dim: int, *, first: bool) -> Tensor:
    """The tensor, with its first or its second half of another one."""
    halves, others = tensor.chunk(2, dim), other.chunk(2, dim)
    return torch.cat([others[0], halves[1]] if first else [halves[0], others[1]], dim)


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return (
        torch.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True)
        if other.is_floating_point()
        else torch.equal(one, other)
    )
