"""KernelBench's own reference of an exclusive cumulative sum."""

import torch

from tests.time_machine.entry import Entry

ENTRY = Entry(
    repository="ScalingIntelligence/KernelBench",
    fix="6bab08bd2bb3912b7edf6f9051015bf0d4ab3b16",
    wrong="the last row is cut off, not the last column, and the sum is not exclusive",
    group="values",
    says="result",
    source="KernelBench/level1",
)


def candidate(x):
    import importlib

    return importlib.import_module("92_cumsum_exclusive").Model(1)(x)


def reference(x):
    return torch.stack([x[:, :i].sum(1) for i in range(x.shape[1])], 1)


def inputs():
    yield (torch.randint(-9, 9, (4, 7)).float(),)
