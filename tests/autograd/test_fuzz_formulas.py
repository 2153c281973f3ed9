"""Formulas drawn from the whole notation: native, in Python and as PyTorch computes them, they are the same."""

from itertools import count
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opwheel.dispatch import Operator, register_python, registration

from tests.ways import WAYS, go

_names = (f"waves_fuzz_formulas_{number}" for number in count())
DOUBLE = torch.float64
SHAPE = (2, 3)


class Part:
    """A part of a formula.

    Args:
        text: as the formula has it.
        value: what it is, of a namespace with all that formulas know.
        names: tensors that it needs, not only their properties.
    """

    def __init__(self, text, value, names=frozenset()):
        self.text, self.value, self.names = text, value, names

    def __repr__(self):
        return self.text


def combined(template, value, *parts):
    names = frozenset().union(*(one.names for one in parts))
    return Part(template.format(*parts), lambda known: value(*(one.value(known) for one in parts)), names)


def named(name):
    return Part(name, lambda known: getattr(known, name), frozenset([name]))


TENSOR_NAMES = ["grad", "x", "w", "result"]
TENSORS = st.sampled_from([named(name) for name in TENSOR_NAMES] + [Part("grads[0]", lambda known: known.grad)])
OF_TENSOR = {  # integers
    "{}.sym_size(0)": lambda t: t.size(0),
    "{}.size(-1)": lambda t: t.size(-1),
    "{}.numel()": lambda t: t.numel(),
    "{}.sym_numel()": lambda t: t.numel(),
    "{}.dim()": lambda t: t.dim(),
}


@st.composite
def integers(draw):
    template = draw(st.sampled_from(list(OF_TENSOR)))
    name = draw(st.sampled_from(TENSOR_NAMES))
    return Part(template.format(name), lambda known: OF_TENSOR[template](getattr(known, name)))


LITERALS = st.sampled_from(["2", "-3", "0.5", "-1.25e-1"]).map(lambda text: Part(text, lambda _: float(text)))
NUMBERS = st.recursive(
    LITERALS | integers() | st.sampled_from([Part(name, lambda known, n=name: getattr(known, n)) for name in "kn"]),
    lambda inner: (
        st.builds(lambda a, b: combined("({} + {})", lambda a, b: a + b, a, b), inner, inner)
        | st.builds(lambda a, b: combined("({} * {})", lambda a, b: a * b, a, b), inner, inner)
        | st.builds(lambda a: combined("(-{})", lambda a: -a, a), inner)
        | st.builds(lambda a: combined("({} / 4)", lambda a: a / 4, a), inner)
    ),
    max_leaves=3,
)
SIZES = st.sampled_from(
    [
        "x.sym_sizes()", "w.sizes()", "grad.size()", "{{x.size(0), w.size(1)}}", "[x.sym_size(0), result.sym_size(-1)]",
        "(2, x.size(-1))", "{{2, 3}}",
    ]
)  # fmt: skip

UNARY = {
    "(-{})": torch.neg,
    "{}.sin()": torch.sin,
    "{}.neg()": torch.neg,
    "{}.conj()": lambda t: t,
    "aten::tanh({})": torch.tanh,
    "at::cos({})": torch.cos,
    "{}.unsqueeze(0).squeeze(0)": lambda t: t,
    "{}.sum({{0}}, true).expand_symint({sizes})": lambda t: t.sum(0, keepdim=True).expand(SHAPE),
    "{}.t().reshape({sizes})": lambda t: t.t().reshape(SHAPE),
    "{}.to(x.scalar_type()).to(w.device(), grad.scalar_type())": lambda t: t,
    "({} + at::zeros({sizes}, x.options()))": lambda t: t,
    "aten::stack([{}, grad], 0).sum(0)": None,
}
BINARY = {
    "({} + {})": torch.add,
    "({} - {})": torch.sub,
    "({} * {})": torch.mul,
    "({} / ({} * 0 + 2))": lambda a, b: a / (b * 0 + 2),
    "{}.masked_fill({} > 0.25, 0)": lambda a, b: a.masked_fill(b > 0.25, 0),
    "aten::where({0} < {1}, {0}, {1})": torch.minimum,
    "scaled({}, by={})": lambda a, b: a * b,
}


@st.composite
def tensors(draw, depth=3):
    """A part of shape SHAPE."""
    kind = draw(st.integers(0, 3)) if depth else 0
    if kind == 0:
        return draw(TENSORS)
    one = draw(tensors(depth=depth - 1))
    if kind == 1:
        key = draw(st.sampled_from(list(UNARY)))
        if UNARY[key] is None:
            return Part(key.format(one), lambda known: one.value(known) + known.grad, one.names)
        return combined(key.replace("{sizes}", draw(SIZES)), UNARY[key], one)
    if kind == 2:
        number = draw(NUMBERS)
        return combined("({} * {})", lambda a, b: a * b, one, number)
    key = draw(st.sampled_from(list(BINARY)))
    return combined(key, BINARY[key], one, draw(tensors(depth=depth - 1)))


def reference(x, w, k, n):
    return x.sin() * w


def op_of(formula):
    namespace = next(_names)
    schemas = {
        "f(Tensor x, Tensor w, float k, int n) -> Tensor": lambda x, w, k, n: reference(x.detach(), w.detach(), k, n),
        "scaled(Tensor x, Tensor by) -> Tensor": lambda x, by: x.detach() * by.detach(),
    }
    operators = [
        Operator("f", reference=reference, derivatives={"x": formula, "w": "grad * x.sin()"}),
        Operator("scaled", reference=torch.mul, derivatives={"x": "grad * by", "by": "grad * x"}),
    ]
    register_python(namespace, schemas, operators)
    return getattr(torch.ops, namespace).f.default


def is_native(op):
    (library,) = [one for one in registration._described.values() if one.namespace == op.namespace]
    return not registration.native_autograd_of(library).refused


def function_of(part):
    """The same as a function of PyTorch's: what a formula keeps of a result is differentiated by the formula again."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            result = reference(x, w, 0.75, 3)
            ctx.save_for_backward(x, w, result)
            return result

        @staticmethod
        def backward(ctx, grad):
            x, w, result = ctx.saved_tensors
            return part.value(SimpleNamespace(grad=grad, x=x, w=w, result=result, k=0.75, n=3)), None

    return Function


def leaves():
    torch.manual_seed(0)
    return [torch.randn(SHAPE, dtype=DOUBLE, requires_grad=True) for _ in range(3)]


def materialized(results, inputs, incoming):
    return torch.autograd.grad(results, inputs, incoming, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=100, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part=tensors())
def test_first_and_second_derivatives(monkeypatch, way, part):
    go(monkeypatch, way)
    op = op_of(part.text)
    assert is_native(op) == (way == "native")
    x, w, grad = leaves()
    weight = torch.linspace(-1, 2, 6, dtype=DOUBLE).reshape(SHAPE)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        result = op(x, w.detach(), 0.75, 3)
    assert len(saved) == len(part.names - {"grad"})
    (found,) = torch.autograd.grad(result, x, grad, create_graph=True)

    (expected,) = torch.autograd.grad(function_of(part).apply(x, w.detach()), x, grad, create_graph=True)
    torch.testing.assert_close(found, expected)
    if expected.requires_grad:
        again = materialized(expected, (x, grad), weight)
        torch.testing.assert_close(materialized(found, (x, grad), weight), again)
