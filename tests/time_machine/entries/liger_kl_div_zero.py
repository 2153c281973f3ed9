"""Kullback-Leibler divergence from probabilities."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import small

ENTRY = Entry(
    repository="linkedin/Liger-Kernel",
    fix="1dc655574490719a8cfdd4675d37920dff31c9ff",
    wrong="a target of zero makes the loss nan",
    group="values",
    says="result",
    source="src",
    accepted=(
        ("numbers", "targets below 1e-10 are taken as 1e-10 in the logarithm"),
        ("dtypes", "the loss of float64 is float32"),
    ),
)


@small
def candidate(scores, target):
    from liger_kernel.ops.kl_div import LigerKLDivLossFunction

    if scores.shape != target.shape:
        raise ValueError("the shapes do not fit")
    return LigerKLDivLossFunction.apply(scores, target.detach(), "batchmean")


def reference(scores, target):
    target = target.detach()
    return (torch.special.xlogy(target, target) - target * scores).sum() / scores.shape[0]


def inputs():
    target = torch.rand(3, 6)
    target[1, 2] = 0
    yield torch.randn(3, 6).log_softmax(-1), target / target.sum(-1, keepdim=True)
