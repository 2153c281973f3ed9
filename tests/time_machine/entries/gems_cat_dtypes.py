"""Concatenation of tensors of two dtypes."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import flag_gems, small

ENTRY = Entry(
    repository="FlagOpen/FlagGems",
    fix="6a9dfb302b8c3a9aaa8624902708d90cda7b0094",
    wrong="the result has the dtype of the first tensor",
    group="dtypes",
    says="torch.int32, expected torch.float32",
    source="src",
)


@small
def candidate(x, y):
    return flag_gems("cat").cat([x, y], 0)


def reference(x, y):
    return torch.cat([x, y], 0).detach()


def inputs():
    yield torch.randint(0, 9, (3, 4), dtype=torch.int32), torch.randn(2, 4)
