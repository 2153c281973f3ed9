"""Operators whose arguments and results have names that formulas use for something else.

Each formula is refused when it is registered, or its gradients are those of the reference.
"""

from itertools import count

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opwheel.dispatch import Operator, register_python

from tests.ways import WAYS, go

_names = (f"waves_formula_names_{number}" for number in count())
RESERVED = [
    "grad",
    "grads",
    "grad_0",
    "grad_1",
    "grad_y",
    "grad_result",
    "grad_result0",
    "result",
    "result0",
    "result1",
]
OTHERS = ["x", "y", "true", "false", "value0", "grads__0", "_own"]
DOUBLE = torch.float64


def product_and_exp(*args):
    return torch.stack(args).prod(0), torch.stack(args).sum(0).exp()


def op_of(schema, reference, derivatives):
    """An operator of a library of its own."""
    namespace = next(_names)
    kernel = lambda *args: reference(*(one.detach() for one in args))  # noqa: E731
    register_python(namespace, {schema: kernel}, [Operator("f", reference=reference, derivatives=derivatives)])
    return getattr(torch.ops, namespace).f.default


def gradients(function, values):
    inputs = [value.clone().requires_grad_() for value in values]
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    return torch.autograd.grad(sum((r * (i + 2)).sum() for i, r in enumerate(results)), inputs)


@st.composite
def operators(draw):
    """Names of arguments, of results (empty: none), and for each use in a formula what the formula says."""
    pool = st.sampled_from(RESERVED + OTHERS)
    arguments = draw(st.lists(pool, min_size=1, max_size=3, unique=True))
    results = draw(st.lists(pool | st.just(""), min_size=1, max_size=2))
    called = [name or ("result" if len(results) == 1 else f"result{i}") for i, name in enumerate(results)]
    spellings = []
    for i, name in enumerate(called):
        ways = [f"grads[{i}]", f"grad_{i}", f"grad_{name}", *(["grad"] if i == 0 else [])]
        spellings.append(draw(st.lists(st.sampled_from(ways), min_size=len(arguments), max_size=len(arguments))))
    return arguments, results, called, spellings


def formulas_of(arguments, called, spellings):
    """Right ones, if each name means what was meant; and all that they say."""
    formulas, said = {}, []
    for k, argument in enumerate(arguments):
        factors = [spellings[0][k], *(other for other in arguments if other != argument)]
        formula = " * ".join(factors)
        said += factors
        if len(called) > 1:
            formula += f" + {spellings[1][k]} * {called[1]}"
            said += [spellings[1][k], called[1]]
        formulas[argument] = formula
    return formulas, said


def is_ambiguous(said, arguments, called):
    own = said.partition("[")[0]
    meanings = (own in arguments) + called.count(own)
    meanings += own in ("grad", "grads", "true", "false")
    meanings += any(said == f"grad_{name}" or said == f"grad_{i}" for i, name in enumerate(called))
    return meanings > 1


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=operators())
def test_a_formula_is_refused_or_right(monkeypatch, way, drawn):
    go(monkeypatch, way)
    arguments, results, called, spellings = drawn
    formulas, said = formulas_of(arguments, called, spellings)
    schema = f"f({', '.join(f'Tensor {one}' for one in arguments)}) -> "
    schema += (
        f"({', '.join(f'Tensor {one}'.strip() for one in results)})"
        if len(results) > 1
        else (f"Tensor {results[0]}".strip())
    )
    reference = product_and_exp if len(results) > 1 else lambda *args: product_and_exp(*args)[0]
    is_refused = len({*called}) < len(called) or any(is_ambiguous(one, arguments, called) for one in said)
    if is_refused:
        with pytest.raises(ValueError, match="f\\("):
            op_of(schema, reference, formulas)
        return
    values = [torch.tensor([0.5 + k, 1.25 - k], dtype=DOUBLE) for k in range(len(arguments))]
    torch.testing.assert_close(
        gradients(op_of(schema, reference, formulas), values), gradients(reference, values), msg=f"{schema} {formulas}"
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("schema", "formulas", "words"),
    [
        (
            "f(Tensor grad) -> Tensor",
            {"grad": "grad * 2"},
            ["uses 'grad', which is the incoming gradient and an argument", "is grads[0]", "schema"],
        ),
        ("f(Tensor grad) -> Tensor", {"grad": lambda grad: grad * 2}, ["the incoming gradient is grad_result"]),
        ("f(Tensor grads) -> Tensor", {"grads": "grads[0] * 2"}, ["uses 'grads[0]'", "is grad_result"]),
        ("f(Tensor[] grads) -> Tensor", {"grads": "grads"}, ["'grads'", "is grad_result"]),
        ("f(Tensor grad_y) -> Tensor y", {"grad_y": "grad_y * 2"}, ["is grads[0]"]),
        ("f(Tensor result) -> Tensor", {"result": "grad * result"}, ["which is an argument and a result"]),
        ("f(Tensor x) -> Tensor grad", {"x": "grad * 2"}, ["which is the incoming gradient and a result"]),
        ("f(Tensor true) -> Tensor", {"true": "aten::sum(grad, [0], true)"}, ["a constant and an argument", "is True"]),
        ("f(Tensor x) -> (Tensor y, Tensor y)", {}, ["2 results 'y'", "a name of its own"]),
        ("f(Tensor x) -> (Tensor result1, Tensor)", {}, ["2 results 'result1'"]),
        ("f(Tensor x) -> Tensor lambda", {"x": "grad * lambda"}, ["'lambda'", "no word of Python"]),
        ("f(Tensor x) -> Tensor", {"x": "grads[1]"}, ["['grads[1]']", "'grads[0]'"]),
    ],
)  # fmt: skip
def test_the_refusal_says_what_to_write(monkeypatch, way, schema, formulas, words):
    go(monkeypatch, way)
    with pytest.raises(ValueError, match="waves_formula_names_") as refusal:
        op_of(schema, torch.sin, formulas)
    for word in (schema, *words):
        assert word in str(refusal.value)


@pytest.mark.parametrize("way", WAYS)
def test_the_incoming_gradient_of_an_operator_with_an_argument_grad(monkeypatch, way):
    go(monkeypatch, way)
    twice = op_of("f(Tensor grad) -> Tensor", lambda grad: grad * 2, {"grad": "grads[0] * 2"})
    assert gradients(twice, [torch.tensor([5.0])])[0].tolist() == [4.0]
