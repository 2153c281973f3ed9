"""Rotary embedding with angles for each sequence."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import small

ENTRY = Entry(
    repository="linkedin/Liger-Kernel",
    fix="d7c78df1455cac50205ad4a9b9ac50c5d144ba0f",
    wrong="angles of the first sequence are taken for all",
    group="values",
    says="result 0",
    source="src",
    accepted=(
        (
            "shapes",
            "one token in contiguous memory: the stride of its rows is that of its heads, so that sequences overlap",
        ),
        ("memory", "the same rows"),
    ),
)


@small
def candidate(q, k, cos, sin):
    from liger_kernel.ops.rope import LigerRopeFunction

    if q.shape[0] != cos.shape[0] or cos.shape != sin.shape or q.shape[2:] != k.shape[2:]:
        raise ValueError("the shapes do not fit")
    if (q.shape[2], q.shape[3]) != (cos.shape[1], 2 * cos.shape[2]) or q.shape[0] != k.shape[0]:
        raise ValueError("the shapes do not fit")
    cos, sin = (torch.cat([x, x], -1).detach() for x in (cos, sin))
    return LigerRopeFunction.apply(q.clone(), k.clone(), cos, sin)  # it may rotate in place


def reference(q, k, cos, sin):
    cos, sin = (torch.cat([x, x], -1)[:, None].detach() for x in (cos, sin))

    def rotated(x):
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    return rotated(q), rotated(k)


def inputs():
    angles = torch.rand(2, 3, 4) * 6
    yield torch.randn(2, 2, 3, 8), torch.randn(2, 2, 3, 8), angles.cos(), angles.sin()
