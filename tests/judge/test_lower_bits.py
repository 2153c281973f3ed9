"""A number in float32 beside numbers in bfloat16, rounded to their bits: wrong where PyTorch keeps what that loses."""

import pytest
import torch
from opwheel_tools.judge import judge, judgement


def _turned(x, angles, dtype):
    """Of two products, the difference: what is left of it is small against the rounding of a factor."""
    a, b = x.to(dtype).chunk(2, -1)
    return (a * angles.cos() - b * angles.sin()).to(x.dtype)


def turned(x, angles):
    return _turned(x, angles, angles.dtype)


def turned_in_float64(x, angles):
    return _turned(x, angles.double(), torch.float64)


def turned_by_rounded(x, angles):
    return _turned(x, angles.to(x.dtype).to(angles.dtype), angles.dtype)


def turned_in_bfloat16(x, angles):
    return _turned(x, angles.to(x.dtype), x.dtype)


def inputs():
    yield torch.randn(64, 32).bfloat16(), torch.randn(16)


def weighed(x, weight):
    return (x * weight).to(x.dtype)


def rounded_weight(x, weight):
    return x * weight.to(x.dtype)


def weights():
    yield torch.randn(40, 16).bfloat16(), torch.randn(16)


def exact():
    yield torch.randn(64, 32).bfloat16(), torch.full((16,), 0.5)


@pytest.fixture(autouse=True)
def few_trials(monkeypatch, in_this_process):
    """The given call, and whether its lower bits count."""
    monkeypatch.setattr(judgement.trials, "every_way", lambda *_: [])
    monkeypatch.setattr(judgement.variants, "variants", lambda *_: [])


@pytest.mark.parametrize("candidate", [turned_by_rounded, turned_in_bfloat16])
def test_the_input_that_is_rounded_is_named(candidate):
    (finding,) = judge(candidate, reference=turned, inputs=inputs, scripts=False).findings
    assert finding.group == "dtypes"
    assert finding.message.startswith("whether a result changes when input 1 is rounded to 8 bits: ")


@pytest.mark.parametrize(
    ("candidate", "reference", "given"),
    [
        (turned_in_float64, turned, inputs),
        (turned, turned_in_bfloat16, inputs),
        (rounded_weight, weighed, weights),
        (weighed, rounded_weight, weights),
        (turned_by_rounded, turned, exact),
    ],
)
def test_nothing_is_found_where_pytorch_is_as_far_off(candidate, reference, given):
    """In particular, in a kernel that rounds a factor by design: by half a unit in the last place of a product."""
    assert judge(candidate, reference=reference, inputs=given, scripts=False).is_right
