"""Fused linear Jensen-Shannon divergence in PyTorch, with rows to ignore."""

import torch

from tests.time_machine.entry import Entry

ENTRY = Entry(
    repository="linkedin/Liger-Kernel",
    fix="33f7f487f1b8eeb03b3b086d1fac8e9ccee9c1a6",
    wrong="rows to ignore are counted",
    group="values",
    says="result",
    source="src",
    accepted=(
        (
            "second derivatives",
            "gradients have no graph: a penalty on them has a gradient of zero, and nothing says so",
        ),
    ),
)


def candidate(student, student_weight, teacher, teacher_weight, labels):
    from liger_kernel.chunked_loss.jsd_loss import LigerFusedLinearJSDLoss

    if student.shape != teacher.shape or student_weight.shape != teacher_weight.shape:
        raise ValueError("the shapes do not fit")
    if student.shape[:1] != labels.shape or student.shape[1:] != student_weight.shape[1:]:
        raise ValueError("the shapes do not fit")
    loss = LigerFusedLinearJSDLoss(weight_hard_loss=0.0, weight_soft_loss=1.0, compiled=False)
    return loss(student, student_weight, teacher.detach(), teacher_weight.detach(), labels).to(student.dtype)


def reference(student, student_weight, teacher, teacher_weight, labels):
    q = (student @ student_weight.mT).log_softmax(-1)
    p = (teacher @ teacher_weight.mT).log_softmax(-1).detach()
    middle = torch.logaddexp(q, p) - torch.log(torch.tensor(2.0, dtype=q.dtype))
    rows = 0.5 * (p.exp() * (p - middle) + q.exp() * (q - middle)).sum(-1)
    is_counted = labels != -100
    return (rows * is_counted).sum() / is_counted.sum()


def inputs():
    labels = torch.tensor([-100, 3, 1, -100, 2, 5, 0, -100])
    yield torch.randn(8, 4), torch.randn(16, 4), torch.randn(8, 4), torch.randn(16, 4), labels
