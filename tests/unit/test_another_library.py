"""The machinery under dispatch/ serves operators it has never heard of: another namespace, other autocast policies."""

from types import SimpleNamespace

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, register
from opwheel.registry.policy import Policy

NAMESPACE = "muladd_test_weights"


def declare(name, autocast):
    """wsum(x, y, w) = w * x + y, with gradients of its own."""
    return Operator(
        name,
        reference=lambda x, y, w: w * x + y,
        rule=Elementwise(linear=(("x", "y"),)),
        derivatives={
            "x": lambda grad, w: grad * w,
            "y": lambda grad: grad,
            "x, y": lambda grad, w: (grad * w, grad),
        },
        autocast=autocast,
    )


@pytest.fixture(scope="module")
def ops():
    """Three operators that differ in their autocast policy, with Python kernels on the CPU."""
    library = torch.library.Library(NAMESPACE, "DEF")
    schemas, declarations = [], []
    for policy in ("promote", "lower_precision", "float32"):
        name = f"wsum_{policy}"
        schemas.append(f"{name}(Tensor x, Tensor y, float w) -> Tensor")
        library.define(schemas[-1])
        library.impl(name, lambda x, y, w: (w * x + y).clone(), "CPU")
        declarations.append(declare(name, policy))
    backends = SimpleNamespace(namespace=NAMESPACE, schemas=tuple(schemas), policy=Policy())
    register(backends, declarations)
    yield getattr(torch.ops, NAMESPACE)
    library._destroy()


@pytest.mark.parametrize(
    ("policy", "dtypes", "expected"),
    [
        ("promote", (torch.bfloat16, torch.bfloat16), torch.bfloat16),
        ("promote", (torch.bfloat16, torch.float32), torch.float32),
        ("promote", (torch.float32, torch.float32), torch.float32),
        ("lower_precision", (torch.float32, torch.float32), torch.bfloat16),
        ("lower_precision", (torch.bfloat16, torch.float32), torch.bfloat16),
        ("float32", (torch.bfloat16, torch.bfloat16), torch.float32),
        ("float32", (torch.float64, torch.float64), torch.float64),
        ("lower_precision", (torch.float64, torch.float64), torch.float64),
    ],
    ids=str,
)
def test_autocast_policies(ops, policy, dtypes, expected):
    x, y = (torch.ones(3, dtype=dtype) for dtype in dtypes)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert getattr(ops, f"wsum_{policy}")(x, y, 2.0).dtype is expected
    assert getattr(ops, f"wsum_{policy}")(x, y, 2.0).dtype is torch.promote_types(*dtypes)


def test_everything_else_follows(ops):
    x, y = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    op = ops.wsum_promote
    assert torch.autograd.gradcheck(lambda x, y: op(x, y, 2.0), (x, y), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x, y: op(x, y, 2.0), (x, y))
    torch.testing.assert_close(torch.vmap(lambda a, b: op(a, b, 2.0))(x, y), op(x, y, 2.0))
    torch.library.opcheck(op.default, (x, y, 2.0))


def test_a_declaration_that_does_not_fit_is_refused():
    schema = "f(Tensor x, Tensor y, float w) -> Tensor"
    backends = SimpleNamespace(namespace=f"{NAMESPACE}_wrong", schemas=(schema,))
    with pytest.raises(ValueError, match="no operator 'f' is declared"):
        register(backends, [])
    with pytest.raises(ValueError, match="but have no schema"):
        register(backends, [declare("f", "promote"), declare("g", "promote")])


def test_a_gradient_for_something_else_is_refused():
    wrong = Operator("f", reference=lambda x: x, rule=Elementwise(), derivatives={"y": lambda grad: grad})
    library = torch.library.Library(f"{NAMESPACE}_gradient", "DEF")
    library.define("f(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match=r"\['y'\]"):
        register(SimpleNamespace(namespace=f"{NAMESPACE}_gradient", schemas=("f(Tensor x) -> Tensor",)), [wrong])
    library._destroy()
