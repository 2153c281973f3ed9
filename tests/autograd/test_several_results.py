"""Several results of different shapes, of which a program uses some, and of whose gradients each formula names some."""

from itertools import combinations

import pytest
import torch
from opwheel.dispatch import Operator, register_python
from torch import Tensor

from tests.recording import Recorded

NAMESPACE = "waves_several_results"
ROWS, COLUMNS = 3, 5
RESULTS = [used for count in (1, 2, 3) for used in combinations(range(3), count)]


def summaries(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return y.sum(), x.sum(0), x * y


def of_x(grad_product: Tensor, grad_columns: Tensor, y: Tensor) -> Tensor:
    return grad_product * y + grad_columns


def of_y(grad_total: Tensor, grad_product: Tensor, x: Tensor) -> Tensor:
    return grad_product * x + grad_total


register_python(
    NAMESPACE,
    {
        "summaries(Tensor x, Tensor y) -> (Tensor total, Tensor columns, Tensor product)": summaries,
        "of_x(Tensor grad_product, Tensor grad_columns, Tensor y) -> Tensor": of_x,
        "of_y(Tensor grad_total, Tensor grad_product, Tensor x) -> Tensor": of_y,
    },
    [
        Operator(
            "summaries",
            reference=summaries,
            derivatives={"x": "of_x(grads[2], grads[1], y)", "y": "of_y(grads[0], grad_product, x)"},
        ),
        Operator("of_x", reference=of_x),
        Operator("of_y", reference=of_y),
    ],
)


def inputs(needed):
    torch.manual_seed(0)
    return [torch.randn(ROWS, COLUMNS, dtype=torch.float64, requires_grad=name in needed) for name in "xy"]


def loss(function, used, tensors):
    results = function(*tensors)
    return sum((results[i] * (i + 1.5)).sin().sum() for i in used)


@pytest.mark.parametrize("needed", ["x", "y", "xy"])
@pytest.mark.parametrize("used", RESULTS)
def test_gradients(used, needed):
    tensors = inputs(needed)
    with_grad = [tensor for tensor in tensors if tensor.requires_grad]
    op = torch.ops.waves_several_results.summaries.default
    found = torch.autograd.grad(loss(op, used, tensors), with_grad)
    for one, expected in zip(found, as_zeros(loss(summaries, used, tensors), with_grad), strict=True):
        torch.testing.assert_close(one, expected)


def as_zeros(value, tensors):
    """PyTorch's own gradients; what a result does not depend on has zeros."""
    if not value.requires_grad:
        return [torch.zeros_like(tensor) for tensor in tensors]
    return torch.autograd.grad(value, tensors, materialize_grads=True)


@pytest.mark.parametrize("used", RESULTS)
def test_second_derivatives(used):
    tensors = inputs("xy")
    op = torch.ops.waves_several_results.summaries.default
    assert torch.autograd.gradcheck(lambda *given: loss(op, used, given), tensors)
    assert torch.autograd.gradgradcheck(lambda *given: loss(op, used, given), tensors)


@pytest.mark.parametrize(
    ("needed", "used", "shapes"),
    [
        ("x", [0], [(ROWS, COLUMNS), (COLUMNS,)]),
        ("x", [2], [(COLUMNS,)]),
        ("x", [1], [(ROWS, COLUMNS)]),
        ("y", [1], [(), (ROWS, COLUMNS)]),
        ("y", [2], [()]),
        ("xy", [2], [(), (COLUMNS,)]),
        ("xy", [0, 1, 2], []),
    ],
)
def test_zeros_are_made_for_what_a_formula_names_and_nothing_else(needed, used, shapes):
    tensors = inputs(needed)
    results = torch.ops.waves_several_results.summaries.default(*tensors)
    chosen = [results[i] for i in used]
    ones = [torch.ones_like(result) for result in chosen]
    with Recorded() as recorded:
        torch.autograd.grad(chosen, [tensor for tensor in tensors if tensor.requires_grad], ones)
    calls = zip(recorded.names, recorded.results, strict=True)
    assert sorted(tuple(zeros.shape) for name, zeros in calls if "zeros" in name) == shapes
