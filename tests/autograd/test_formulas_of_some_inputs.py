"""Formulas for some inputs, which name the gradients of some results: the rest goes through the reference.

What a formula says of its inputs is taken for right: that it leaves out the gradient of a result that another formula
names means that its inputs do not matter to that result.
"""

from itertools import count

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opwheel.dispatch import Operator, register_python

from tests.recording import Recorded
from tests.ways import WAYS, go

_names = (f"waves_some_inputs_{number}" for number in count())
INPUTS = "xyz"


class Case:
    """An operator whose result ``j`` is ``(j + 1) * prod(a_k ** 2 + k)`` over the inputs that it depends on.

    Args:
        depends: for each result, on which inputs.
        names: of the results; empty for none.
        fixed: results that are declared to have no gradient.
        with_formula: for each input None, or whether its formula is text, or a function.
        left_out: results whose gradient no formula names.
        has_order: whether an integer result is the last one.
    """

    def __init__(self, depends, names, *, fixed=(), with_formula=(), left_out=(), has_order=False):
        self.depends, self.names, self.fixed = depends, names, fixed
        self.with_formula, self.left_out, self.has_order = with_formula, left_out, has_order
        self.inputs = INPUTS[: len(with_formula)]
        count_of_results = len(depends) + has_order
        self.called = [n or ("result" if count_of_results == 1 else f"result{j}") for j, n in enumerate(names)]

    def __repr__(self):
        return str(vars(self))

    def reference(self, *inputs):
        results = []
        for j, depends in enumerate(self.depends):
            result = torch.full_like(inputs[0], j + 1)
            for k in depends:
                result = result * (inputs[k] * inputs[k] + k)
            results.append(result.detach() if j in self.fixed else result)
        if self.has_order:
            results.append(inputs[0].argsort())
        return tuple(results) if len(results) > 1 else results[0]

    def formula(self, k):
        """The gradient of an input, as text; the names of gradients alternate between their spellings."""
        terms = ["x * 0"]
        for j, depends in enumerate(self.depends):
            if k in depends and j not in (*self.fixed, *self.left_out):
                others = "".join(f" * ({self.inputs[i]} * {self.inputs[i]} + {i})" for i in depends if i != k)
                gradient = f"grad_{self.called[j]}" if (j + k) % 2 else f"grads[{j}]"
                terms.append(f"{gradient} * {2 * (j + 1)} * {self.inputs[k]}{others}")
        return " + ".join(terms)

    def derivatives(self):
        formulas = {}
        for k, kind in enumerate(self.with_formula):
            if kind == "text":
                formulas[self.inputs[k]] = self.formula(k)
            elif kind == "function":
                formulas[self.inputs[k]] = self.function(k)
        return formulas

    def function(self, k):
        """The same formula as a function of what it names."""
        text = self.formula(k)
        used = [name for name in (*self.inputs, *(f"grad_{name}" for name in self.called)) if name in text]
        for j in range(len(self.depends)):
            if f"grads[{j}]" in text:
                text = text.replace(f"grads[{j}]", f"grad_{j}")
                used.append(f"grad_{j}")
        return eval(f"lambda {', '.join(used)}: {text}", {})

    def register(self):
        namespace = next(_names)
        results = [f"Tensor {name}".strip() for name in [*self.names, *(["order"] if self.has_order else [])]]
        outputs = results[0] if len(results) == 1 else f"({', '.join(results)})"
        schema = f"f({', '.join(f'Tensor {name}' for name in self.inputs)}) -> {outputs}"
        operator = Operator(
            "f",
            reference=self.reference,
            derivatives=self.derivatives(),
            not_differentiable=tuple(self.called[j] for j in self.fixed),
        )
        register_python(namespace, {schema: lambda *inputs: self.reference(*(x.detach() for x in inputs))}, [operator])
        return getattr(torch.ops, namespace).f.default


@st.composite
def cases(draw):
    inputs, results = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    some_inputs = st.lists(st.integers(0, inputs - 1), unique=True).map(sorted)
    some_results = st.lists(st.integers(0, results - 1), unique=True).map(sorted)
    kinds = st.sampled_from([None, "text"] if draw(st.booleans()) else [None, "text", "function"])
    case = Case(
        [draw(some_inputs) for _ in range(results)],
        [draw(st.sampled_from(["", name])) for name in ("p", "q", "r")[:results]],
        fixed=draw(some_results),
        with_formula=[draw(kinds) for _ in range(inputs)],
        left_out=draw(some_results),
        has_order=draw(st.booleans()),
    )
    needed = draw(st.lists(st.integers(0, inputs - 1), unique=True, min_size=1).map(sorted))
    used = draw(st.lists(st.integers(0, results - 1), unique=True, min_size=1).map(sorted))
    return case, needed, used


def values_of(case, needed=()):
    values = [torch.tensor([0.5 + k, 1.25 - k], dtype=torch.float64) for k in range(len(case.inputs))]
    return [value.requires_grad_(k in needed) for k, value in enumerate(values)]


def loss_of(function, used, inputs):
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    return sum((results[j] * (j + 1.5)).sin().sum() for j in used)


def gradients(function, case, needed, used, *, again):
    inputs = values_of(case, needed)
    leaves = [inputs[k] for k in needed]
    loss = loss_of(function, used, inputs)
    if not loss.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    first = torch.autograd.grad(loss, leaves, create_graph=again, materialize_grads=True)
    total = sum((one * one).sum() for one in first)
    if not again or not total.requires_grad:
        return first
    return torch.autograd.grad(total, leaves, materialize_grads=True)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=cases())
def test_gradients_are_those_of_the_reference(monkeypatch, way, drawn):
    go(monkeypatch, way)
    case, needed, used = drawn
    op = case.register()
    for again in (False, True):
        found = gradients(op, case, needed, used, again=again)
        expected = gradients(case.reference, case, needed, used, again=again)
        torch.testing.assert_close(found, expected, msg=lambda text: f"{text}\n{case}")

    values = tuple(values_of(case))
    tangents = tuple(value + 0.25 for value in values)
    torch.testing.assert_close(torch.func.jvp(op, values, tangents), torch.func.jvp(case.reference, values, tangents))
    of_all = tuple(range(len(values)))

    def by_transforms(function):
        return torch.vmap(torch.func.grad(lambda *given: loss_of(function, used, given), of_all))(*values)

    torch.testing.assert_close(by_transforms(op), by_transforms(case.reference))


TWO = {"depends": [[0, 1], [1], [0, 1]], "names": ["p", "", "r"], "has_order": True}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("left_out", [(), (0,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("with_formula", [("text", None), (None, "text"), ("text", "text")])
def test_compiled(monkeypatch, way, with_formula, left_out):
    go(monkeypatch, way)
    torch._dynamo.reset()
    case = Case(**TWO, with_formula=with_formula, left_out=left_out)
    op = case.register()
    for used in ([0, 1, 2], [1]):
        compiled = torch.compile(
            lambda *inputs: loss_of(op, used, inputs),  # noqa: B023
            backend="aot_eager",
            fullgraph=True,
        )
        inputs = values_of(case, [0, 1])
        found = torch.autograd.grad(compiled(*inputs), inputs, materialize_grads=True)
        expected = gradients(case.reference, case, [0, 1], used, again=False)
        torch.testing.assert_close(found, tuple(expected))


@pytest.mark.parametrize("way", WAYS)
def test_formulas_are_used_where_they_say_all(monkeypatch, way):
    """The reference is not called, and its arguments are not kept, where formulas give the gradients."""
    go(monkeypatch, way)
    calls = []
    case = Case([[0, 1]], ["p"], with_formula=("text", None), has_order=True)
    reference = case.reference
    case.reference = lambda *inputs: calls.append(torch.is_grad_enabled()) or reference(*inputs)
    op = case.register()
    x, y = values_of(case, [0])
    result, _ = op(x, y)
    calls.clear()
    torch.autograd.grad(result.sum(), x)
    assert calls == []
    x, y = values_of(case, [0, 1])
    result, _ = op(x, y)
    calls.clear()
    torch.autograd.grad(result.sum(), x)
    assert calls == [True]


@pytest.mark.parametrize("way", WAYS)
def test_arguments_are_kept_for_the_reference_only_where_it_may_be_needed(monkeypatch, way):
    """An integer result has no gradient that a formula could leave out."""
    go(monkeypatch, way)

    def kept(left_out):
        case = Case([[0], [0]], ["p", "q"], with_formula=("text", "text"), left_out=left_out, has_order=True)
        x, y = values_of(case, [0])
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
            case.register()(x, y)
        return len(saved)

    assert kept(()) == 1
    assert kept((1,)) == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_random_operator_has_a_formula_for_each_input(monkeypatch, way):
    """The reference would draw again."""
    go(monkeypatch, way)
    schema = "f(Tensor x, Tensor scale, Tensor index, Generator? generator=None) -> (Tensor y, Tensor mask)"

    def f(x, scale, index, generator=None):
        mask = torch.rand(x.shape, dtype=x.dtype, generator=generator)
        return x * scale * mask + index, mask

    def declare(**formulas):
        operator = Operator("f", reference=f, derivatives=formulas, not_differentiable=("mask",))
        namespace = next(_names)
        register_python(namespace, {schema: f}, [operator])
        return getattr(torch.ops, namespace).f.default

    with pytest.raises(
        ValueError, match=r"no formula for \['index', 'scale'\].*the reference would draw again.*not_differentiable"
    ):
        declare(x="grad * scale * mask")
    op = declare(x="grad * scale * mask", scale="grad * x * mask", index="None")
    x, scale = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    y, mask = op(x, scale, torch.arange(3))
    torch.testing.assert_close(torch.autograd.grad(y.sum(), (x, scale)), (scale * mask, x * mask))


def test_zeros_are_not_made_for_what_no_formula_names():
    case = Case([[0], [0]], ["p", "q"], with_formula=("text",), left_out=(1,))
    (x,) = values_of(case, [0])
    p, _ = case.register()(x)
    with Recorded() as recorded:
        torch.autograd.grad(p, x, torch.ones_like(p))
    assert not [name for name in recorded.names if "zeros" in name]
