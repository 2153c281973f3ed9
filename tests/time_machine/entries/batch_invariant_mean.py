"""The mean over two dimensions, in bfloat16."""

import torch

from tests.time_machine.entry import Entry

ENTRY = Entry(
    repository="thinking-machines-lab/batch_invariant_ops",
    fix="a47c6044861370d1c081fb65d45e1be30e2e1f3b",
    wrong="the mean over two dimensions is float32, whatever the input is",
    group="dtypes",
    says="torch.float32, expected torch.bfloat16",
    package="batch_invariant_ops",
)


def candidate(x):
    from batch_invariant_ops.batch_invariant_ops import mean_batch_invariant

    return mean_batch_invariant(x, [0, 2])


def reference(x):
    return x.mean((0, 2))


def inputs():
    yield (torch.randn(3, 4, 5).bfloat16(),)
