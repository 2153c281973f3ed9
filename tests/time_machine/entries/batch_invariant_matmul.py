"""A matrix product in float32."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import small

ENTRY = Entry(
    repository="thinking-machines-lab/batch_invariant_ops",
    fix="224fed6028ae177b15e8a8257edb5e9da460bb44",
    wrong="every result goes through float16: 11 bits, and no more than 65,504",
    group="values",
    says="result",
    package="batch_invariant_ops",
)


@small
def candidate(x, y):
    from batch_invariant_ops.batch_invariant_ops import matmul_persistent

    return matmul_persistent(x, y)


def reference(x, y):
    return (x @ y).detach()


def inputs():
    yield torch.randn(5, 8), torch.randn(8, 6)
