"""Cross entropy without a reduction."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import small

ENTRY = Entry(
    repository="linkedin/Liger-Kernel",
    fix="05b43a14913ced3776aa3fc50020089b8c0d63c1",
    wrong="the gradient does not know the incoming gradients of single rows",
    group="gradients",
    says="gradient",
    source="src",
    accepted=(
        (
            "second derivatives",
            "gradients have no graph: a penalty on them has a gradient of zero, and nothing says so",
        ),
    ),
)


@small
def candidate(logits, target):
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    if logits.shape[:1] != target.shape:
        raise ValueError("the shapes do not fit")
    copy = logits.clone()  # gradients are written into the memory of the logits, as its documentation says
    return LigerCrossEntropyFunction.apply(copy, target, None, -100, 0.0, 0.0, "none", None, False)[0]


def reference(logits, target):
    return -logits.log_softmax(-1).gather(1, target[:, None])[:, 0]


def inputs():
    yield torch.randn(5, 11), torch.randint(0, 11, (5,))
