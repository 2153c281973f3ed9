"""The largest element."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import flag_gems, small

ENTRY = Entry(
    repository="FlagOpen/FlagGems",
    fix="8ef0859481cac05b8e5ea540ac7002615ebfb0c3",
    wrong="memory is read in order, whatever the strides",
    group="layouts",
    says="result",
    source="src",
    accepted=(("numbers", "nan is left out, which torch.max returns: tl.max leaves it out unless it is told to"),),
)


@small
def candidate(x):
    return flag_gems("max").max(x)


def reference(x):
    return x.flatten().sort().values[-1]


def inputs():
    yield (torch.randn(5, 7),)
