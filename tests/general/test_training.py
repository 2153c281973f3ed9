"""An operator that Autograd replaces by another one, which computes gradients along the way."""

from itertools import count

import pytest
import torch
from opwheel.dispatch import Operator, register_python
from torch import Tensor

from tests.recording import Recorded

NAMESPACE = "waves_training"
calls = []
numbers = count()


def cubes(x: Tensor) -> Tensor:
    return x.pow(3).sum(-1)


def cubes_kernel(x: Tensor) -> Tensor:
    calls.append("cubes")
    return cubes(x)


def cubes_training_kernel(x: Tensor) -> tuple[Tensor, Tensor]:
    calls.append("cubes_training")
    return cubes(x), 3 * x * x


register_python(
    NAMESPACE,
    {
        "cubes(Tensor x) -> Tensor": cubes_kernel,
        "cubes_training(Tensor x) -> (Tensor y, Tensor d_x)": cubes_training_kernel,
        "scaled(Tensor grad_output, Tensor d_x) -> Tensor": lambda grad_output, d_x: grad_output.unsqueeze(-1) * d_x,
    },
    [
        Operator("cubes", reference=cubes, training="cubes_training"),
        Operator(
            "cubes_training",
            reference=lambda x: (cubes(x), 3 * x * x),
            derivatives={"x": "scaled(grad, d_x)"},
            not_differentiable=("d_x",),
        ),
        Operator("scaled", reference=lambda grad_output, d_x: grad_output.unsqueeze(-1) * d_x),
    ],
)
op = torch.ops.waves_training.cubes.default


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


def test_without_a_gradient_the_operator_itself_is_called():
    x = torch.randn(2, 3)
    torch.testing.assert_close(op(x), cubes(x))
    with torch.no_grad():
        op(x.requires_grad_())
    assert calls == ["cubes", "cubes"]


def test_with_a_gradient_the_other_one_is():
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    y = op(x)
    assert isinstance(y, Tensor)
    assert calls == ["cubes_training"]
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 3 * x.detach() ** 2)
    assert torch.autograd.gradcheck(op, x)
    assert torch.autograd.gradgradcheck(op, x)


def test_a_gradient_that_no_formula_names_is_not_made():
    """It would be zeros of the size of what is kept."""
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    y = op(x)
    with Recorded() as recorded:
        torch.autograd.grad(y, x, torch.ones(2, dtype=torch.float64))
    assert f"{NAMESPACE}.scaled" in recorded.names
    assert not [name for name in recorded.names if "zeros" in name]


def test_transforms():
    x = torch.randn(2, 3, dtype=torch.float64)
    torch.testing.assert_close(torch.func.grad(lambda t: op(t).sum())(x), 3 * x**2)
    torch.testing.assert_close(torch.func.jvp(op, (x,), (x,))[1], 3 * x.pow(3).sum(-1))
    torch.testing.assert_close(torch.vmap(op)(x), cubes(x))
    torch.testing.assert_close(torch.func.hessian(lambda t: op(t))(x[0]), torch.diag(6 * x[0]))


def test_compiled():
    x = torch.randn(2, 3, requires_grad=True)
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 3 * x.detach() ** 2)
    assert calls.count("cubes") == 0
    torch.testing.assert_close(compiled(x.detach()), cubes(x.detach()))
    assert calls.count("cubes") == 1


@pytest.mark.parametrize(
    ("schema", "claims", "message"),
    [
        ("other(Tensor x) -> Tensor", {"training": "nothing"}, "'nothing' is not another operator of the library"),
        ("other(Tensor x) -> Tensor", {"training": "other"}, "'other' is not another operator of the library"),
        ("other(Tensor z) -> Tensor", {"training": "target"}, "has the schema target"),
        ("other(Tensor x) -> (Tensor, Tensor, Tensor)", {"training": "target"}, "has the schema target"),
        ("other(Tensor x, Tensor(a!) y) -> ()", {"training": "target"}, "but it writes"),
        ("other(Tensor x) -> Tensor", {"training": "target", "derivatives": {"x": "grad"}}, "derivatives of its own"),
    ],
)
def test_what_cannot_take_its_place_is_refused(schema, claims, message):
    kernels = {"target(Tensor x) -> (Tensor, Tensor)": None, schema: None}
    operators = [Operator("target", reference=torch.exp), Operator("other", reference=torch.exp, **claims)]
    with pytest.raises(ValueError, match=message):
        register_python(f"{NAMESPACE}_{next(numbers)}", kernels, operators)
