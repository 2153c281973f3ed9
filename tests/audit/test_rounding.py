"""How far results may be off: a few units of rounding, and anything where they jump."""

import pytest
import torch
from opwheel_tools.audit.checks import rounding

aten = torch.ops.aten
X = torch.rand(4, 250, generator=torch.Generator().manual_seed(3)) + 0.5


def allowed(op, *args, **kwargs):
    """The largest part of a result that it may be off by."""
    bound = rounding.tolerances(op, args, {}, **kwargs)["result 0"]
    return float((bound / op(*args).double().abs()).max())


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 3e-6), (torch.float64, 3e-6), (torch.bfloat16, 0.2), (torch.float16, 0.03)]
)
def test_one_rounding(dtype, most):
    assert most / 20 < allowed(aten.mul.Tensor, X.to(dtype), X.to(dtype)) < most


def test_sums_that_cancel_may_be_off_by_what_is_summed():
    x = X - X.mean(-1, keepdim=True)
    bound = rounding.tolerances(aten.sum.dim_IntList, (x, [-1]), {})["result 0"]
    off = (x.flip(-1).cumsum(-1)[:, -1] - x.sum(-1)).abs()
    assert bool((off <= bound).all())
    assert float(bound.max()) < 1e-4


def test_what_autocast_computes_may_be_off_by_its_dtype():
    assert 0.004 < allowed(aten.mm.default, X[:, :4], X[:, :4], low=torch.bfloat16) < 0.2


def test_a_result_that_jumps_may_be_anything():
    ties = torch.tensor([[1.0, 1.0], [1.0, 2.0]])
    assert rounding.tolerances(aten.argmax.default, (ties, 1), {})["result 0"].tolist() == [torch.inf, 0.0]


def test_the_same_call_again_may_sum_in_another_order():
    (bound,) = rounding.repeated({"result 0": X}).values()
    assert 0 < float(bound.max()) < 1e-4
    assert not rounding.repeated({"result 0": X > 1})["result 0"].any()
