"""Arguments that are declared to have no gradient: none is asked for, and none is computed."""

from itertools import count

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, register_python

from tests.autograd.in_place import define_product
from tests.ways import WAYS, go

_names = (f"waves_fixed_arguments_{number}" for number in count())
DOUBLE = torch.float64
SCHEMA = "f(Tensor x, Tensor w) -> Tensor"


def product(x, w):
    return x * x * w.exp()


def op_of(schema=SCHEMA, reference=product, kernel=None, **fields):
    namespace = next(_names)
    operator = Operator("f", reference=reference, **fields)
    kernel = kernel or (lambda *args: reference(*(one.detach() for one in args)))
    register_python(namespace, {schema: kernel}, [operator])
    return getattr(torch.ops, namespace).f.default


def values():
    return torch.tensor([1.5, -2.0], dtype=DOUBLE), torch.tensor([0.25, 0.5], dtype=DOUBLE)


def leaves():
    return [one.requires_grad_() for one in values()]


DECLARATIONS = {
    "formula": {"derivatives": {"x": "grad * x * w.exp() * 2"}, "not_differentiable": ("w",)},
    "reference": {"not_differentiable": ("w",)},
    "function": {"derivatives": {"x": lambda grad, x, w: grad * x * w.exp() * 2}, "not_differentiable": ("w",)},
    "derivatives.yaml": {"derivatives": {"x": "grad * x * w.exp() * 2", "w": "non_differentiable"}},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", DECLARATIONS)
def test_no_gradient_of_any_order(monkeypatch, way, kind):
    go(monkeypatch, way)
    op = op_of(**DECLARATIONS[kind])
    x, w = leaves()
    first = torch.autograd.grad(op(x, w).sum(), (x, w), create_graph=True, allow_unused=True)
    assert first[1] is None
    torch.testing.assert_close(first[0], 2 * x * w.exp())
    second = torch.autograd.grad(first[0].sum(), (x, w), allow_unused=True)
    assert second[1] is None
    torch.testing.assert_close(second[0], 2 * w.exp())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", DECLARATIONS)
def test_nothing_is_recorded_for_it_alone(monkeypatch, way, kind):
    go(monkeypatch, way)
    kernel = lambda x, w: torch.from_numpy(x.numpy() ** 2 * w.exp().numpy())  # noqa: E731
    x, w = leaves()
    assert not op_of(kernel=kernel, **DECLARATIONS[kind])(x.detach(), w).requires_grad


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", DECLARATIONS)
def test_transforms(monkeypatch, way, kind):
    go(monkeypatch, way)
    op = op_of(**DECLARATIONS[kind])
    x, w = values()
    by_x, by_w = torch.func.grad(lambda x, w: op(x, w).sum(), (0, 1))(x, w)
    torch.testing.assert_close(by_x, 2 * x * w.exp())
    assert not by_w.any()
    _, tangent = torch.func.jvp(op, (x, w), (torch.ones_like(x), torch.ones_like(w)))
    torch.testing.assert_close(tangent, 2 * x * w.exp())
    _, tangent = torch.func.jvp(lambda w: op(x, w), (w,), (torch.ones_like(w),))
    assert not tangent.any()
    rows = torch.stack([x, 2 * x])
    of_rows = torch.vmap(torch.func.grad(lambda x, w: op(x, w).sum(), (0, 1)), in_dims=(0, None))(rows, w)
    torch.testing.assert_close(of_rows[0], 2 * rows * w.exp())
    assert not of_rows[1].any()


@pytest.mark.parametrize("way", WAYS)
def test_compiled(monkeypatch, way):
    go(monkeypatch, way)
    torch._dynamo.reset()
    op = op_of(**DECLARATIONS["formula"])
    x, w = leaves()
    result = torch.compile(lambda x, w: op(x, w) * 2, backend="aot_eager", fullgraph=True)(x, w)
    found = torch.autograd.grad(result.sum(), (x, w), allow_unused=True)
    torch.testing.assert_close(found[0], 4 * x * w.exp())
    assert found[1] is None or not found[1].any()


@pytest.mark.parametrize("way", WAYS)
def test_lists_and_optional_tensors(monkeypatch, way):
    go(monkeypatch, way)

    def reference(x, parts, bias=None):
        return x * sum(parts) + (0 if bias is None else bias)

    op = op_of(
        "f(Tensor x, Tensor[] parts, Tensor? bias=None) -> Tensor",
        reference,
        kernel=lambda x, parts, bias=None: reference(x, parts, bias).detach(),
        derivatives={"x": lambda grad, parts: grad * sum(parts)},
        not_differentiable=("parts", "bias"),
    )
    (x, w), (_, bias) = leaves(), leaves()
    for given in ((x, [w, w]), (x, [w, w], bias)):
        found = torch.autograd.grad(op(*given).sum(), (x, w, bias), allow_unused=True)
        torch.testing.assert_close(found[0], 2 * w.detach())
        assert found[1:] == (None, None)


@pytest.mark.parametrize("way", WAYS)
def test_in_place(monkeypatch, way):
    go(monkeypatch, way)
    declare_operator = define_product(next(_names), "f")

    def declare(**fields):
        return declare_operator(Operator("f", rule=Elementwise(), reference=lambda x, w: x * w, **fields))

    with pytest.raises(ValueError, match=r"\['x'\] is overwritten, and declared to have no gradient"):
        declare(derivatives={"w": "grad * x"}, not_differentiable=("x",))
    f_ = declare(derivatives={"x": "grad * w"}, not_differentiable=("w",))
    x, w = leaves()
    found = torch.autograd.grad(f_(x * 1, w).sum(), (x, w), allow_unused=True)
    torch.testing.assert_close(found[0], w.detach())
    assert found[1] is None
    target = x.detach().clone()
    assert not f_(target, w).requires_grad


@pytest.mark.parametrize("way", WAYS)
def test_a_random_operator(monkeypatch, way):
    go(monkeypatch, way)

    def reference(x, index, generator=None):
        mask = torch.rand(x.shape, dtype=x.dtype, generator=generator)
        return x * mask, mask

    op = op_of(
        "f(Tensor x, Tensor index, Generator? generator=None) -> (Tensor y, Tensor mask)",
        reference,
        kernel=lambda x, index, generator=None: reference(x.detach(), index, generator),
        derivatives={"x": "grad * mask"},
        not_differentiable=("mask", "index"),
    )
    x, w = leaves()
    y, mask = op(x, w)
    found = torch.autograd.grad(y.sum(), (x, w), allow_unused=True)
    torch.testing.assert_close(found[0], mask)
    assert found[1] is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("schema", "fields", "words"),
    [
        (SCHEMA, {"not_differentiable": ("z",)}, "names ['z']; its results are ['result'], its tensors ['w', 'x']"),
        (SCHEMA, {"derivatives": {"z": "non_differentiable"}}, "names ['z']; its results are ['result']"),
        ("f(Tensor x, float k) -> Tensor", {"not_differentiable": ("k",)}, "names ['k']; its results are ['result']"),
        ("f(Tensor x, Tensor w) -> Tensor w", {"not_differentiable": ("w",)}, "['w'], an argument and a result"),
        (SCHEMA, {"derivatives": {"w": "grad"}, "not_differentiable": ("w",)},
         "derivatives of ['w'], which is declared to have no gradient; leave one of the two out"),
        ("f(Tensor x) -> (Tensor kept, Tensor y)", {"derivatives": {"x": "grad"}, "not_differentiable": ("kept",)},
         "uses 'grad', and 'kept' is declared to have none; there are ['grad_y']\n    grad\n    ^"),
    ],
)  # fmt: skip
def test_what_is_refused(monkeypatch, way, schema, fields, words):
    go(monkeypatch, way)
    with pytest.raises(ValueError, match="waves_fixed_arguments") as refusal:
        op_of(schema, **fields)
    assert words in str(refusal.value)
