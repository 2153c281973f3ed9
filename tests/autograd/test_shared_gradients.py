"""Keys with parentheses: one result of a formula is the gradient of several inputs."""

from itertools import combinations

import pytest
import torch
from opwheel.dispatch import Operator, register_python
from torch import Tensor

NAMESPACE = "waves_shared_gradients"


def scaled_sum(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + y
    return total * weight, total


def scaled_sum_backward(
    grad_scaled: Tensor, grad_total: Tensor, total: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    return grad_scaled * weight + grad_total, grad_scaled * total


def total_of(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x + y - z


def total_and_copy(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    return x + y, z.clone()


FORMULA = "scaled_sum_backward(grad_scaled, grad_total, total, weight)"


def of_function(grad_scaled: Tensor, grad_total: Tensor, total: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return scaled_sum_backward(grad_scaled, grad_total, total, weight)


OPERATORS = {
    "scaled_sum": (scaled_sum, {"(x, y), weight": FORMULA}),
    "weight_first": (scaled_sum, {"weight , ( y,x )": "swapped(grad_scaled, grad_total, total, weight)"}),
    "by_function": (scaled_sum, {"(x, y), weight": of_function}),
    "total_of": (total_of, {"(x, y)": "grad", "z": "-grad"}),
    "total_and_copy": (total_and_copy, {"(x, y)": "grad_total", "z": "grads[1]"}),
}


def swapped(*args: Tensor) -> tuple[Tensor, Tensor]:
    return scaled_sum_backward(*args)[::-1]


BACKWARD = "(Tensor grad_scaled, Tensor grad_total, Tensor total, Tensor weight) -> (Tensor, Tensor)"
SCALED = "(Tensor x, Tensor y, Tensor weight) -> (Tensor scaled, Tensor total)"
register_python(
    NAMESPACE,
    {
        f"scaled_sum{SCALED}": scaled_sum,
        f"weight_first{SCALED}": scaled_sum,
        f"by_function{SCALED}": scaled_sum,
        "total_of(Tensor x, Tensor y, Tensor z) -> Tensor": total_of,
        "total_and_copy(Tensor x, Tensor y, Tensor z) -> (Tensor total, Tensor copy)": total_and_copy,
        f"scaled_sum_backward{BACKWARD}": scaled_sum_backward,
        f"swapped{BACKWARD}": swapped,
    },
    [
        *(Operator(name, reference=f, derivatives=formulas) for name, (f, formulas) in OPERATORS.items()),
        Operator("scaled_sum_backward", reference=scaled_sum_backward),
        Operator("swapped", reference=swapped),
    ],
)


def op_of(name):
    return getattr(torch.ops.waves_shared_gradients, name).default


def loss(function, tensors):
    results = function(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    return sum((result * (i + 1.5)).sin().sum() for i, result in enumerate(results))


def inputs(needed=(0, 1, 2)):
    torch.manual_seed(0)
    return [torch.randn(3, 5, dtype=torch.float64, requires_grad=i in needed) for i in range(3)]


@pytest.mark.parametrize("needed", [chosen for count in (1, 2, 3) for chosen in combinations(range(3), count)], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(name, needed):
    tensors = inputs(needed)
    leaves = [tensors[i] for i in needed]
    found = torch.autograd.grad(loss(op_of(name), tensors), leaves)
    expected = torch.autograd.grad(loss(OPERATORS[name][0], tensors), leaves)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_that_leaves_keep_are_each_their_own(name):
    """What is added to the one later is not added to the other."""
    tensors = inputs()
    loss(op_of(name), tensors).backward()
    kept = tensors[1].grad.clone()
    tensors[0].grad.add_(1)
    torch.testing.assert_close(tensors[1].grad, kept, rtol=0, atol=0)


@pytest.mark.parametrize("name", OPERATORS)
def test_second_derivatives(name):
    assert torch.autograd.gradgradcheck(lambda *tensors: op_of(name)(*tensors), inputs())


@pytest.mark.parametrize(("count", "given"), [(3, "3 results"), (1, "a tensor")])
def test_another_number_of_gradients_than_the_key_has(count, given):
    """A tensor, too, of as many rows as there are gradients to be."""
    space = f"waves_{count}_gradients"

    def gradients(grad: Tensor) -> Tensor | tuple[Tensor, ...]:
        return torch.stack([grad, grad]) if count == 1 else (grad,) * count

    register_python(
        space,
        {"f(Tensor x, Tensor y, Tensor z) -> Tensor": total_of},
        [Operator("f", reference=total_of, derivatives={"(x, y), z": gradients})],
    )
    total = getattr(torch.ops, space).f(*(torch.ones(3, requires_grad=True) for _ in range(3)))
    message = rf"{space}::f: derivatives\['x, y, z'\] gave {given}, its key has gradients for 2"
    with pytest.raises(ValueError, match=message):
        total.sum().backward()
