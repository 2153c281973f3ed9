"""Results below a tolerance: graders with an absolute one let zeros pass for them, the judge does not.

The problems are four of a public benchmark of kernels, written from their names.
"""

import pytest
import torch
from opwheel_tools.judge import judge, judgement

GRADER = 1e-2  # absolute and relative


def softmax(x):
    return torch.softmax(x, 1)


def softmax_inputs():
    yield (torch.rand(2, 4000),)


def frobenius_norm(x):
    return x / torch.linalg.norm(x)


def frobenius_norm_inputs():
    yield (torch.rand(4, 8, 100, 100),)


def smallest(x):
    return x.amin(1)


def smallest_inputs():
    yield (torch.rand(4, 4000, 5),)


def unit_rows(x):
    return x / x.norm(dim=1, keepdim=True)


def unit_rows_inputs():
    yield (torch.rand(2, 60000),)


def zeros(x):
    return torch.zeros_like(x)


def zeros_of_smallest(x):
    return x.new_zeros(x.shape[0], x.shape[2])


CHEATS = [
    (softmax, softmax_inputs, zeros),
    (frobenius_norm, frobenius_norm_inputs, zeros),
    (smallest, smallest_inputs, zeros_of_smallest),
    (unit_rows, unit_rows_inputs, zeros),
]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("reference", "inputs", "cheat"), CHEATS, ids=[one[0].__name__ for one in CHEATS])
def test_zeros_are_a_finding(monkeypatch, reference, inputs, cheat):
    (given,) = inputs()
    assert torch.allclose(cheat(*given), reference(*given), atol=GRADER, rtol=GRADER)
    monkeypatch.setattr(judgement.variants, "bases", lambda _: [])  # the given call alone
    (finding,) = judge(cheat, reference=reference, inputs=inputs, scripts=False).findings
    assert finding.group == "values"
    assert "values are zero" in finding.message
