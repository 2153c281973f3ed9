"""A penalty of the largest logits, which has a gradient and no value."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import fla

ENTRY = Entry(
    repository="fla-org/flash-linear-attention",
    fix="b9bdbcf2649a3c4f5a4af55493d35ae1cbe60d93",
    wrong="the penalty's gradient is not multiplied with the incoming one",
    group="gradients",
    says="gradient 1",
    package="fla",
    accepted=(
        ("second derivatives", "the second derivative of the penalty is zero: what its backward keeps has no graph"),
        ("aliases", "it returns the loss itself, so that what is written into the result changes the argument"),
    ),
)


def candidate(loss, logits):
    fla("fla.modules")
    from fla.modules.l2warp import L2Wrap

    if loss.dim() or logits.dim() != 3:
        raise ValueError("the shapes do not fit")
    return L2Wrap.apply(loss, logits)


def reference(loss, logits):
    if loss.dim() or logits.dim() != 3:
        raise ValueError("the shapes do not fit")
    largest = logits.amax(-1)
    penalty = 1e-4 * largest.square().sum() / (2 * logits.shape[0] * logits.shape[1])
    return loss + (penalty - penalty.detach()).nan_to_num()  # the value is that of the loss


def inputs():
    yield torch.randn(()), torch.randn(2, 3, 5)
