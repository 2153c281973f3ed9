"""A number in float32 beside numbers in bfloat16: rounded to their bits it is off by no more than they may be."""

import pytest
import torch
from opwheel_tools.judge import judge, judgement


def weighed(x, weight):
    return (x * weight).to(x.dtype)


def weighed_in_float64(x, weight):
    return (x.double() * weight).to(x.dtype)


def rounded_weight(x, weight):
    return x * weight.to(x.dtype)


def inputs():
    yield torch.randn(4, 16).bfloat16(), torch.randn(16)


def few():
    yield torch.randn(7).bfloat16(), torch.randn(7)


def exact():
    yield torch.randn(4, 16).bfloat16(), torch.full((16,), 0.5)


@pytest.fixture(autouse=True)
def few_trials(monkeypatch, in_this_process):
    """The given call, and whether its lower bits count."""
    monkeypatch.setattr(judgement.trials, "every_way", lambda *_: [])
    monkeypatch.setattr(judgement.variants, "variants", lambda *_: [])


def test_the_input_that_is_rounded_is_named():
    (finding,) = judge(rounded_weight, reference=weighed, inputs=inputs, scripts=False).findings
    assert finding.group == "dtypes"
    assert finding.message.startswith("whether a result changes when input 1 is rounded to 8 bits: ")


@pytest.mark.parametrize(
    ("candidate", "reference", "given"),
    [
        (weighed_in_float64, weighed, inputs),
        (weighed, rounded_weight, inputs),
        (rounded_weight, weighed, few),
        (rounded_weight, weighed, exact),
    ],
)
def test_nothing_is_found_where_the_reference_hardly_changes(candidate, reference, given):
    assert judge(candidate, reference=reference, inputs=given, scripts=False).is_right
