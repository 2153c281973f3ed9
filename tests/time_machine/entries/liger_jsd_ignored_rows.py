"""Fused linear Jensen-Shannon divergence with rows to ignore."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import small

ENTRY = Entry(
    repository="linkedin/Liger-Kernel",
    fix="1c0c75c3455e788d575966bfc5edec3ef166835e",
    wrong="each chunk of rows reads the labels of the first one: others are ignored",
    group="values",
    says="result",
    source="src",
    accepted=(
        ("gradients", "each backward multiplies what is kept in place: a second one differs, as do transposed inputs"),
        ("numbers", "probabilities that underflow make the loss nan"),
    ),
)


@small
def candidate(student, student_weight, teacher, teacher_weight, labels):
    from liger_kernel.ops.fused_linear_jsd import LigerFusedLinearJSDFunction

    if not student.shape == teacher.shape or student_weight.shape != teacher_weight.shape:
        raise ValueError("the shapes do not fit")
    if student.shape[:1] != labels.shape or student.shape[1:] != student_weight.shape[1:]:
        raise ValueError("the shapes do not fit")
    return LigerFusedLinearJSDFunction.apply(
        student, student_weight, teacher.detach(), teacher_weight.detach(), labels, 0.5, -100, 1.0
    )


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
