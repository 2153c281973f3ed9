"""What formulas ask of a tensor without its elements: it is found out in the forward pass, and the tensor is freed."""

import gc
import weakref
from itertools import count

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, register_python, registration
from torch._dynamo.testing import CompileCounterWithBackend

from tests.autograd.in_place import define_product
from tests.ways import NATIVE, WAYS, go

_names = (f"waves_properties_{number}" for number in count())
DOUBLE = torch.float64


def pooled(x, w):
    """Rows added up, and weighted: no gradient of `x` needs its elements."""
    return x.sum(0) * w


def op_of(reference, schema, derivatives, **fields):
    """An operator of a library of its own."""
    namespace = next(_names)
    operator = Operator(schema.partition("(")[0], reference=reference, derivatives=derivatives, **fields)

    def kernel(*args):
        return reference(*(one.detach() if isinstance(one, torch.Tensor) else one for one in args))

    register_python(namespace, {schema: kernel}, [operator])
    return getattr(getattr(torch.ops, namespace), operator.name).default


def is_native(op):
    (library,) = [one for one in registration._described.values() if one.namespace == op.namespace]
    return not registration.native_autograd_of(library).refused


POOLED = "pooled(Tensor x, Tensor w) -> Tensor"
# What the formula for x may look like; all of them give the gradient of `pooled` by a matrix.
SPELLINGS = [
    "(grad * w).expand(x.sym_sizes())",
    "(grad * w).expand(x.sizes())",
    "(grad * w).expand(x.size())",
    "(grad * w).expand_symint({x.sym_size(0), x.sym_size(-1)})",
    "(grad * w).expand([x.size(0), grad.size(0)])",
    "(grad * w).expand([x.size(0), result.size(-1)])",
    "(grad * w).repeat([x.numel() - x.numel() + x.size(0), x.dim() - 1])",
    "at::zeros(x.sym_sizes(), x.options()) + grad * w",
    "aten::ones({}, dtype=x.scalar_type(), layout=x.layout(), device=x.device) * grad * w + grad.new_zeros(x.sizes())",
    "at::zeros(x.sym_sizes(), grads[0].options()) + (grad * w).to(x.scalar_type()).to(x.device(), grad.scalar_type())",
    "(grad * w).unsqueeze(0).expand([x.size(0), -1]).neg().neg().reshape(x.sym_sizes())",
]


def gradients(function, *values, again=False):
    inputs = [value.detach().clone().requires_grad_() for value in values]
    result = function(*inputs)
    first = torch.autograd.grad((result * result).sum(), inputs, create_graph=again)
    if not again:
        return first
    return torch.autograd.grad(sum((one * one.detach().cos()).sum() for one in first), inputs)


def values(rows=3):
    torch.manual_seed(rows)
    return torch.randn(rows, 4, dtype=DOUBLE), torch.randn(4, dtype=DOUBLE)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("formula", SPELLINGS)
def test_gradients_are_those_of_the_reference(monkeypatch, way, formula):
    go(monkeypatch, way)
    op = op_of(pooled, POOLED, {"x": formula, "w": "grad * (result / w)"})
    assert is_native(op) == (way == "native")
    for again in (False, True):
        torch.testing.assert_close(gradients(op, *values(), again=again), gradients(pooled, *values(), again=again))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("formula", SPELLINGS)
def test_the_tensor_is_freed(monkeypatch, way, formula):
    go(monkeypatch, way)
    op = op_of(pooled, POOLED, {"x": formula, "w": "grad"})
    x, w = values()
    w.requires_grad_(False)
    leaf = x.requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(tuple(one.shape)) or one, lambda one: one):
        given = leaf * 1
        result = op(given, w)
    alive = weakref.ref(given)
    del given
    gc.collect()
    assert alive() is None
    assert saved == [(4,)]  # w, and no result
    torch.testing.assert_close(torch.autograd.grad(result.sum(), leaf)[0], w.expand(3, 4))


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_that_is_named_as_well_is_kept(monkeypatch, way):
    go(monkeypatch, way)
    op = op_of(torch.sin, "f(Tensor x) -> Tensor", {"x": "grad * x.cos() * x.dim() / 2"})
    x, _ = values()
    torch.testing.assert_close(gradients(op, x, again=True), gradients(torch.sin, x, again=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("formula", [SPELLINGS[0], SPELLINGS[3], SPELLINGS[8]])
def test_compiled_with_symbols(monkeypatch, way, formula):
    """One graph for all sizes, whose gradients have the sizes of each call."""
    go(monkeypatch, way)
    torch._dynamo.reset()
    op = op_of(pooled, POOLED, {"x": formula, "w": "grad * result / w"})
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x, w: op(x * 2, w), backend=counter, dynamic=True, fullgraph=True)
    for rows in (3, 5, 7):
        found = gradients(compiled, *values(rows))
        torch.testing.assert_close(found, gradients(lambda x, w: pooled(x * 2, w), *values(rows)))
    assert counter.frame_count == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("formula", [SPELLINGS[0], SPELLINGS[3], SPELLINGS[8]])
def test_exported_with_symbols(monkeypatch, way, formula):
    go(monkeypatch, way)
    op = op_of(pooled, POOLED, {"x": formula, "w": "grad * result / w"})

    class Model(torch.nn.Module):
        def forward(self, x, w):
            return op(x, w)

    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(Model(), values(), dynamic_shapes={"x": {0: rows}, "w": None})
    for count_of_rows in (3, 11):
        found = gradients(program.module(), *values(count_of_rows))
        torch.testing.assert_close(found, gradients(pooled, *values(count_of_rows)))


@pytest.mark.parametrize("way", [NATIVE])  # it refuses an autograd.Function whose backward is a method
@pytest.mark.parametrize("formula", SPELLINGS)
def test_compiled_autograd(monkeypatch, way, formula):
    go(monkeypatch, way)
    torch._dynamo.reset()
    op = op_of(pooled, POOLED, {"x": formula, "w": "grad * result / w"})
    for rows in (3, 5, 6):
        x, w = (one.requires_grad_() for one in values(rows))
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager", dynamic=True)):
            op(x, w).pow(2).sum().backward()
        torch.testing.assert_close((x.grad, w.grad), gradients(pooled, *values(rows)))


@pytest.mark.parametrize("way", WAYS)
def test_those_of_an_optional_tensor(monkeypatch, way):
    go(monkeypatch, way)

    def reference(x, bias=None):
        return x * 2 if bias is None else x * 2 + bias

    formulas = {"x": "grad * 2", "bias": "grad.sum(0).expand(bias.sym_sizes())"}
    op = op_of(reference, "f(Tensor x, Tensor? bias=None) -> Tensor", formulas)
    assert is_native(op) == (way == "native")
    torch.testing.assert_close(gradients(op, *values()), gradients(reference, *values()))
    torch.testing.assert_close(gradients(op, values()[0]), gradients(reference, values()[0]))


@pytest.mark.parametrize("way", WAYS)
def test_an_optional_tensor_where_a_tensor_is_expected(monkeypatch, way):
    go(monkeypatch, way)

    def reference(x, w=None):
        return x * 2 if w is None else x * w

    op = op_of(reference, "f(Tensor x, Tensor? w=None) -> Tensor", {"w": "(grad * x).sum(0) + aten::mul(w, 0)"})
    assert is_native(op) == (way == "native")
    x, w = values()
    (found,) = gradients(lambda w: op(x, w), w)
    torch.testing.assert_close(found, gradients(lambda w: reference(x, w), w)[0])


@pytest.mark.parametrize("way", WAYS)
def test_an_integer_where_a_floating_point_number_is_expected(monkeypatch, way):
    go(monkeypatch, way)
    op = op_of(
        lambda x: x / x.numel(), "f(Tensor x) -> Tensor", {"x": "aten::div(aten::leaky_relu(grad, 1), x.numel())"}
    )
    assert is_native(op) == (way == "native")
    torch.testing.assert_close(gradients(op, values()[0]), gradients(lambda x: x / 12, values()[0]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("schema", "formula", "words"),
    [
        ("f(Tensor[] x) -> Tensor", "[grad.expand(x.sizes())]", "'x' is List[Tensor]; only a tensor has such"),
        ("f(Tensor x, float k) -> Tensor", "grad * k.dim()", "'k' is float; only a tensor has such properties"),
        ("f(Tensor x) -> Tensor", "grads.sym_size(0)", "'grads' is List[Tensor]"),
        ("f(Tensor x) -> Tensor", "y.sym_size(0)", "uses ['y']; there are"),
        ("f(Tensor x) -> Tensor", "grad * [x].dim()", "'[x].dim()' is not understood: only a tensor has properties"),
        ("f(Tensor x) -> Tensor", "grad.to(x.options(1))", "aten::options; PyTorch has no such operator"),
        ("f(Tensor x) -> Tensor", "grad + x.options()", "aten::options; PyTorch has no such operator; methods that"),
        ("f(Tensor x) -> Tensor", "grad * x.shape", "'x.shape' is not understood"),
        ("f(Tensor x) -> Tensor", "grad * x.size(0, 1)", "aten::size does not take these arguments; there are"),
        ("f(Tensor x) -> Tensor", "grad * x.dim(1)", "aten::dim"),
        ("f(Tensor x) -> Tensor", "grad.zero_()", "aten::zero_ overwrites an argument; a formula must not write"),
        ("f(Tensor x) -> Tensor", "grad.expand(1, 2)", "aten::expand does not take these arguments; there are\n"),
        ("f(Tensor x) -> Tensor", "handle_r_to_c(x.scalar_type(), grad)", "calls ['handle_r_to_c']"),
    ],
)  # fmt: skip
def test_what_is_refused(monkeypatch, way, schema, formula, words):
    go(monkeypatch, way)
    with pytest.raises(ValueError, match="derivatives") as refusal:
        op_of(torch.sin, schema, {"x": formula})
    assert words in str(refusal.value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_complex", [(True, True), (True, False), (False, True)])
def test_conjugates(monkeypatch, way, is_complex):
    """The gradient of a real tensor is real: handle_r_to_c of derivatives.yaml is not needed."""
    go(monkeypatch, way)

    def reference(x, w, k):
        return x * w * k

    schema = "f(Tensor x, Tensor w, Scalar k) -> Tensor"
    op = op_of(reference, schema, {"x": "grad * (w * k).conj()", "w": "(grad * x.conj()) * k.conj()"})
    assert is_native(op) == (way == "native")
    torch.manual_seed(0)
    given = [torch.randn(3, dtype=torch.complex128 if one else DOUBLE) for one in is_complex]

    def derivatives(function, k):
        inputs = [one.clone().requires_grad_() for one in given]
        first = torch.autograd.grad((function(*inputs, k) ** 2).sum().abs(), inputs, create_graph=True)
        return *first, *torch.autograd.grad(sum((one * one).sum().abs() for one in first), inputs)

    for k in (2, 0.5, 1.5 - 2j):
        torch.testing.assert_close(derivatives(op, k), derivatives(reference, k))


@pytest.mark.parametrize("way", WAYS)
def test_those_of_what_is_overwritten(monkeypatch, way):
    """They are found out before the kernel writes; those of the result afterwards."""
    go(monkeypatch, way)
    formulas = {"x": "grad * w * x.dim() / result.dim()", "w": "(grad * x).reshape(result.sizes())"}
    operator = Operator("scaled", rule=Elementwise(), reference=lambda x, w: x * w, derivatives=formulas)
    scaled_ = define_product(next(_names), "scaled")(operator)
    x, _ = values()
    found = gradients(lambda x, w: scaled_(x * 1, w), x, x + 2)
    torch.testing.assert_close(found, gradients(lambda x, w: x * w, x, x + 2))
