"""Jensen-Shannon divergence of logits, in PyTorch."""

import torch

from tests.time_machine.entry import Entry

ENTRY = Entry(
    repository="linkedin/Liger-Kernel",
    fix="a089cd5900ca6f8d338ed21040ad096533dd575d",
    wrong="probabilities that underflow make the loss nan",
    group="values",
    says="result",
    source="src",
)


def candidate(student, teacher):
    from liger_kernel.chunked_loss.jsd_loss import LigerFusedLinearJSDFunction

    if student.shape != teacher.shape:
        raise ValueError("the shapes do not fit")
    return LigerFusedLinearJSDFunction.distillation_loss_fn(student, teacher, 0.5)


def reference(student, teacher):
    q, p = student.log_softmax(-1), teacher.log_softmax(-1)
    middle = torch.logaddexp(q, p) - torch.log(torch.tensor(2.0, dtype=q.dtype))
    return 0.5 * (p.exp() * (p - middle) + q.exp() * (q - middle)).sum()


def inputs():
    yield torch.randn(3, 6) * 300, torch.randn(3, 6) * 300
