"""The kit's checks for operators that are in no package."""

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, Sample, register_python
from opwheel.testing.checks import check_operators


def samples(device, dtype, requires_grad):
    yield Sample(torch.randn(3, 4, device=device, dtype=dtype, requires_grad=requires_grad))


def register(namespace, kernel):
    register_python(
        namespace,
        {
            "rows(Tensor x) -> Tensor": kernel,
            "twice(Tensor x) -> Tensor": lambda x: x * 2,
            "untested(Tensor x) -> Tensor": lambda x: x * 2,
        },
        [
            Operator("rows", reference=lambda x: x.softmax(-1), samples=samples, dtypes=(torch.float32, torch.float64)),
            Operator("twice", reference=lambda x: x * 2, rule=Elementwise(), dtypes=(torch.float32,)),
            Operator("untested", reference=lambda x: x * 2),
        ],
    )


@pytest.mark.slow
def test_right_operators_pass():
    register("waves_checked", lambda x: x.softmax(-1))
    assert check_operators("waves_checked") == ("untested",)


def test_what_is_wrong_is_named():
    register("waves_checked_wrong", lambda x: x.softmax(0))
    with pytest.raises(AssertionError, match=r"values of rows\(float32\[3, 4\]\): values: result 0"):
        check_operators("waves_checked_wrong")


def test_a_namespace_that_nobody_registered():
    with pytest.raises(KeyError, match="waves_nowhere"):
        check_operators("waves_nowhere")
