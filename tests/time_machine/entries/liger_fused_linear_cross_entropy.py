"""Fused linear cross entropy without a reduction."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import small

ENTRY = Entry(
    repository="linkedin/Liger-Kernel",
    fix="9ac26bb82226c9279f0fda784300f5e02ce444b2",
    wrong="every gradient is multiplied with the incoming one of the first row",
    group="gradients",
    says="gradient 0",
    source="src",
    accepted=(
        (
            "second derivatives",
            "gradients have no graph: a penalty on them has a gradient of zero, and nothing says so",
        ),
        ("numbers", "log-sum-exp minus a logit: of a loss below 1e-5 nothing is left, PyTorch's log_softmax keeps it"),
    ),
)


@small
def candidate(x, weight, target):
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    if x.shape[:1] != target.shape or x.shape[1:] != weight.shape[1:]:
        raise ValueError("the shapes do not fit")
    loss = LigerFusedLinearCrossEntropyFunction.apply(x, weight, target, None, None, -100, 0.0, 0.0, "none")[0]
    return loss.to(x.dtype)


def reference(x, weight, target):
    scores = (x @ weight.mT).log_softmax(-1)
    return -scores.gather(1, target[:, None])[:, 0]


def inputs():
    yield torch.randn(5, 8), torch.randn(11, 8), torch.randint(0, 11, (5,))
