"""Numbers at the edge of where a function is defined."""

import pytest
import torch
from opwheel_tools.judge import judge, judgement, rounding


def entropy(x):
    return -torch.special.xlogy(x, x).sum()


def entropy_inputs():
    yield (torch.tensor([0.25, 0.0, 0.75]),)


def without_zero(x):
    return -(x * x.log()).sum()


@pytest.mark.usefixtures("in_this_process")
def test_zero_at_the_edge_is_compared(monkeypatch):
    """Though the function is not defined for what is a unit of rounding below."""
    monkeypatch.setattr(judgement.variants, "bases", lambda _: [])  # the given call alone
    groups = [
        one.group for one in judge(without_zero, reference=entropy, inputs=entropy_inputs, scripts=False).findings
    ]
    assert "values" in groups


def test_a_jump_on_one_side_of_an_edge_is_one():
    beyond, on_this_side = torch.full((2,), torch.nan), torch.tensor([1.0, 0.0])
    found = rounding.jumps(torch.zeros(2), [beyond, on_this_side], torch.full((2,), 1e-6))
    assert found.tolist() == [True, False]
