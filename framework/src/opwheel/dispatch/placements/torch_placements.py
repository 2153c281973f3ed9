"""Placements as DTensor has them."""

from __future__ import annotations

import re

from torch.distributed.tensor import Partial, Placement, Replicate, Shard

_PLACEMENT = re.compile(r"([RSP])(?:\((-?\w+)\))?")


def placement(text: str, dims: int = 0) -> Placement:
    """The placement that ``R``, ``S(1)``, ``P(sum)`` or ``P(avg)`` stands for.

    Args:
        text: of it.
        dims: number of dimensions of the tensor, for ``S(-1)``.
    """
    match = _PLACEMENT.fullmatch(text)
    assert match is not None, text
    kind, what = match.groups()
    if kind == "S":
        return Shard(int(what) + dims if what.startswith("-") else int(what))
    return Replicate() if kind == "R" else Partial(what)
