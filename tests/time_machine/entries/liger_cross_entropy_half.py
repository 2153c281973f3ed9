"""Cross entropy of confident rows in float16."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import small

ENTRY = Entry(
    repository="linkedin/Liger-Kernel",
    fix="be1cdc176be78dad93314cd718f6eab31a6c64c9",
    wrong="the gradient of a confident class is rounded to float16 before 1 is subtracted",
    group="gradients",
    says="gradients 0, as given: gradient",
    source="src",
    accepted=(
        (
            "second derivatives",
            "gradients have no graph: a penalty on them has a gradient of zero, and nothing says so",
        ),
        ("layouts", "the gradient of logits that are transposed in memory is the logits: no kernel has written it"),
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
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))  # PyTorch's own in float16 is as far off
    return -wide.log_softmax(-1).gather(1, target[:, None])[:, 0].to(logits.dtype)


def inputs():
    logits, target = torch.randn(6, 11), torch.randint(0, 11, (6,))
    logits[torch.arange(6), target] = logits.amax(-1) + 9
    yield logits.half(), target
