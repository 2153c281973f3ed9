"""Formulas as text: what they mean, in both ways, and what is refused when an operator is registered."""

import re
from itertools import count

import pytest
import torch
from opwheel.dispatch import Operator, register_python, registration
from opwheel.dispatch.native_autograd import why_not
from opwheel.dispatch.overload import as_tuple

from tests.ways import WAYS, go

_names = (f"waves_formula_text_{number}" for number in count())
DOUBLE = torch.float64
F = "f(Tensor x) -> Tensor"
BINARY = "f(Tensor x, Tensor w) -> Tensor"
TWO = "f(Tensor x) -> (Tensor y, Tensor)"
KEPT = "f(Tensor x, Tensor w) -> (Tensor y, Tensor kept)"
NUMBERS = "f(Tensor x, float a, int n, Scalar s) -> Tensor"
MIXED = "f(Tensor x, Tensor w, int[] dims, bool flag, str mode, ScalarType? dtype=None, *, float k=2.0) -> Tensor"

X = torch.tensor([[0.5, -1.25, 2.0], [1.5, 0.25, -0.75]], dtype=DOUBLE)
W = torch.tensor([[2.0, 3.0, -1.0], [0.5, -2.0, 4.0]], dtype=DOUBLE)
VALUES = {
    F: (X,),
    BINARY: (X, W),
    TWO: (X,),
    KEPT: (X, W),
    NUMBERS: (X, 0.5, 3, 7),
    MIXED: (X, W, [0], True, "tanh", torch.float64),
    "f(Tensor[] parts, Tensor w) -> Tensor": ([X, W], W),
    "f(Tensor self, Tensor value0) -> Tensor": (X, W),
}
PARTS, AWKWARD = list(VALUES)[-2:]


def scaled(grad_output, by, factor=1.0, *, negated=False):
    return grad_output * by * (-factor if negated else factor)


def both(grad_output, x, w):
    return grad_output * w, grad_output * x


def total(parts, dims, times):
    return sum(parts) * (times + len(dims))


# The other operators of the formulas' own library.
OWN = {
    "scaled(Tensor grad_output, Tensor by, float factor=1.0, *, bool negated=False) -> Tensor": scaled,
    "both(Tensor grad_output, Tensor x, Tensor w) -> (Tensor, Tensor)": both,
    "total(Tensor[] parts, int[] dims, int times) -> Tensor": total,
}
gelu = torch.nn.functional.gelu

# Schema; formulas by their keys; what they give from the gradients that arrive, g (1 and h for the second result), and
# the arguments; whether the native library computes them.
MEANINGS = [
    # names
    (F, {"x": "grad"}, lambda g, x: g, True),
    (F, {"x": " grad "}, lambda g, x: g, True),
    (F, {"x": "grads[0]"}, lambda g, x: g, True),
    (F, {"x": "grads[ 0 ]"}, lambda g, x: g, True),
    (F, {"x": "grad_0"}, lambda g, x: g, True),
    (F, {"x": "grad_result"}, lambda g, x: g, True),
    (F, {"x": "grad * result"}, lambda g, x: g * x.sin(), True),
    (F, {"x": "None"}, None, True),
    (TWO, {"x": "grad_y + grads[1] * result1"}, lambda g, h, x: g + h * x.cos(), True),
    (TWO, {"x": "total(grads, [0], 2)"}, lambda g, h, x: (g + h) * 3, True),
    (TWO, {"x": "grad + grad_1 * 2"}, lambda g, h, x: g + 2 * h, True),
    (TWO, {"x": "grad_result1"}, None, True),  # the gradient of y is not named: through the reference
    (AWKWARD, {"self": "grad * value0", "value0": "grad * self"}, lambda g, x, w: (g * w, g * x), True),
    # arithmetic
    (F, {"x": "-grad"}, lambda g, x: -g, True),
    (F, {"x": "--grad"}, lambda g, x: g, True),
    (F, {"x": "grad * -x"}, lambda g, x: g * -x, True),
    (F, {"x": "-grad * x"}, lambda g, x: -g * x, True),
    (F, {"x": "1 - grad - x"}, lambda g, x: 1 - g - x, True),
    (F, {"x": "1 - (grad - x)"}, lambda g, x: 1 - (g - x), True),
    (F, {"x": "grad + 2 * x"}, lambda g, x: g + 2 * x, True),
    (F, {"x": "(grad + 2) * x"}, lambda g, x: (g + 2) * x, True),
    (F, {"x": "grad / 4 / x"}, lambda g, x: g / 4 / x, True),
    (F, {"x": "grad / (4 / x)"}, lambda g, x: g / (4 / x), True),
    (F, {"x": "grad * (7 / 2 - 3)"}, lambda g, x: g * 0.5, True),
    (F, {"x": "grad * .5 + 5. - 1e-1 - 2.5E0"}, lambda g, x: g * 0.5 + 5.0 - 1e-1 - 2.5, True),
    (F, {"x": "grad * 0.1"}, lambda g, x: g * 0.1, True),
    (F, {"x": "grad * 4e-308 / 4e-308"}, lambda g, x: g * 4e-308 / 4e-308, True),
    (F, {"x": "grad * 1.7976931348623157e308 / 1.7976931348623157e308"},
     lambda g, x: g * 1.7976931348623157e308 / 1.7976931348623157e308, True),
    (F, {"x": "grad * 0x10"}, lambda g, x: g * 16, True),
    (F, {"x": "grad * 9223372036854775807 / 9223372036854775807"}, lambda g, x: g, True),
    (F, {"x": "grad * (100000000000000000000 * 0.5) / 5e19"}, lambda g, x: g, False),
    (F, {"x": "grad * True"}, lambda g, x: g, False),
    (NUMBERS, {"x": "grad * a + n - s"}, lambda g, x, a, n, s: g * a + n - s, True),
    (NUMBERS, {"x": "grad * (n / 2) - n * n"}, lambda g, x, a, n, s: g * (n / 2) - n * n, True),
    (NUMBERS, {"x": "grad * (-a - -n * -s)"}, lambda g, x, a, n, s: g * (-a - n * s), True),
    # operators of its own library
    (BINARY, {"x": "scaled(grad, w)", "w": "scaled(grad, x)"}, lambda g, x, w: (g * w, g * x), True),
    (F, {"x": "scaled(grad, x, 3)"}, lambda g, x: g * x * 3, True),
    (F, {"x": "scaled(grad, x, -3, negated=True)"}, lambda g, x: g * x * 3, True),
    (F, {"x": "scaled(by=x, negated=false, grad_output=grad,)"}, lambda g, x: g * x, True),
    (F, {"x": "scaled(scaled(grad, x), x + 1)"}, lambda g, x: g * x * (x + 1), True),
    (NUMBERS, {"x": "scaled(grad, x, a)"}, lambda g, x, a, n, s: g * x * a, True),
    (BINARY, {"x, w": "both(grad, x, w)"}, lambda g, x, w: (g * w, g * x), True),
    (BINARY, {"w , x": "both(grad, w, x)"}, lambda g, x, w: (g * w, g * x), True),
    (BINARY, {"(x, w)": "grad * 3"}, lambda g, x, w: (g * 3, g * 3), True),
    (KEPT, {"x, w": "both(grad_y, kept, w)"}, lambda g, h, x, w: (g * w, g * x.cos()), True),
    # of others
    (F, {"x": "grad * aten::cos(x)"}, lambda g, x: g * x.cos(), True),
    (F, {"x": "aten::mul(grad, other=x)"}, lambda g, x: g * x, True),
    (F, {"x": "aten::mul(grad, 2)"}, lambda g, x: g * 2, True),
    (F, {"x": "grad + aten::pow(x, 2) * aten::pow(2, x)"}, lambda g, x: g + x**2 * 2**x, True),
    (F, {"x": "aten::add(grad, x, alpha=2)"}, lambda g, x: g + 2 * x, True),
    (F, {"x": "grad * aten::sum(x, [0], true)"}, lambda g, x: g * x.sum(0, keepdim=True), True),
    (F, {"x": "grad * aten::sum(x, -1, True)"}, lambda g, x: g * x.sum(-1, keepdim=True), True),
    (F, {"x": "grad * aten::sum(x, [], True)"}, lambda g, x: g * x.sum(), True),
    (F, {"x": "grad * aten::sum(x, None)"}, lambda g, x: g * x.sum(), True),
    (F, {"x": "aten::clamp(grad, None, 0.5)"}, lambda g, x: g.clamp(None, 0.5), True),
    (F, {"x": "aten::gelu(grad, approximate='tanh')"}, lambda g, x: gelu(g, approximate="tanh"), True),
    (F, {"x": 'aten::gelu(grad, approximate="none")'}, lambda g, x: gelu(g), True),
    (F, {"x": "aten::sum(aten::stack([grad, x], 0), (0,))"}, lambda g, x: g + x, True),
    (F, {"x": "aten::sum(aten::stack([grad, x, grad * 2], 0), [0])"}, lambda g, x: 3 * g + x, True),
    (MIXED, {"x": "k * aten::gelu(grad, approximate=mode) * aten::sum(w, dims, flag)"},
     lambda g, x, w, *_: 2 * gelu(g, approximate="tanh") * w.sum(0, keepdim=True), True),
    (MIXED, {"x": "grad * aten::sum(x, dims, dtype=dtype, keepdim=flag)", "w": "grad"},
     lambda g, x, *_: (g * x.sum(0, keepdim=True), g), True),
    # methods, and what C++ writes
    (F, {"x": "grad * x.cos()"}, lambda g, x: g * x.cos(), True),
    (F, {"x": "(grad + x).mul(x.sum(0, keepdim=true)).neg()"}, lambda g, x: -(g + x) * x.sum(0, keepdim=True), True),
    (F, {"x": "grad.sum({0}, true).expand_symint(x.sym_sizes())"}, lambda g, x: g.sum(0, True).expand(2, 3), True),
    (F, {"x": "grad + x.sum({}, true)"}, lambda g, x: g + x.sum(), True),
    (F, {"x": "at::mul(grad, x)"}, lambda g, x: g * x, True),
    (F, {"x": "grad.masked_fill(x <= 0.5, 0)"}, lambda g, x: g.masked_fill(x <= 0.5, 0), True),
    (F, {"x": "grad * (-1 < x) * (result != 0) * (x == grad).logical_not()"}, lambda g, x: g * (x > -1), True),
    (BINARY, {"x": "grad.masked_fill(x > w, 0) + grad.masked_fill(x < w, 0) + grad.masked_fill(x >= w, 0)"},
     lambda g, x, w: g * (1 + (x <= w)), True),
    (MIXED, {"x": "grad.to(dtype).unsqueeze(0).squeeze(0).t().reshape({-1}).reshape(x.sizes())", "w": "grad"},
     lambda g, *_: (g.t().reshape(2, 3), g), True),
    (NUMBERS, {"x": "grad * s.conj() * a.conj()"}, lambda g, x, a, n, s: g * a * s, True),
    # lists
    (PARTS, {"parts": "[grad * 2, -grad]", "w": "grad"}, lambda g, parts, w: (2 * g, -g, g), True),
    (PARTS, {"parts": "(grad * 2, -grad)", "w": "grad"}, lambda g, parts, w: (2 * g, -g, g), True),
    (PARTS, {"parts": "[grad, None]", "w": "grad"}, lambda g, parts, w: (g, None, g), False),
    (BINARY, {"x, w": "[grad * w, grad * x]"}, lambda g, x, w: (g * w, g * x), False),
]  # fmt: skip


def reference_of(schema):
    def f(*args, **_):
        first = sum(args[0]) if isinstance(args[0], list) else args[0]
        return (first.sin(), first.cos()) if "-> (" in schema else first.sin()

    return f


def op_of(schema, derivatives, others=OWN, **fields):
    """An operator of a library of its own, and why its derivatives are not native."""
    namespace = next(_names)
    reference = reference_of(schema)

    def kernel(*args, **_):
        return reference([one.detach() for one in args[0]] if isinstance(args[0], list) else args[0].detach())

    operators = [Operator("f", reference=reference, derivatives=derivatives, **fields)]
    operators += [Operator(one.partition("(")[0], reference=function) for one, function in others.items()]
    register_python(namespace, {schema: kernel, **others}, operators)
    return getattr(torch.ops, namespace).f.default


def why_not_native(op):
    (library,) = [one for one in registration._described.values() if one.namespace == op.namespace]
    return registration.native_autograd_of(library).refused.get("f")


def leaf(value):
    if isinstance(value, list) and isinstance(value[0], torch.Tensor):
        return [leaf(one) for one in value]
    return value.clone().requires_grad_() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("schema", "formulas", "meaning", "is_native"), MEANINGS, ids=[str(list(row[1].values())) for row in MEANINGS]
)
def test_what_formulas_mean(monkeypatch, way, schema, formulas, meaning, is_native):
    go(monkeypatch, way)
    op = op_of(schema, formulas, not_differentiable=("kept",) if schema == KEPT else ())
    assert (why_not_native(op) is None) == (is_native and way == "native")
    given, inputs = list(VALUES[schema]), []
    for i, argument in enumerate(op._schema.arguments[: len(given)]):
        if re.search(rf"\b{argument.name}\b", ", ".join(formulas)):
            given[i] = leaf(given[i])
            inputs += given[i] if isinstance(given[i], list) else [given[i]]
    results = as_tuple(op(*given))
    differentiable = [result for result in results if result.requires_grad]
    incoming = [W * (i + 1) + 0.25 for i in range(len(differentiable))]
    found = torch.autograd.grad(differentiable, inputs, incoming, allow_unused=True)
    if meaning is None:
        (x,) = again = [leaf(VALUES[schema][0])]
        expected = torch.autograd.grad(as_tuple(reference_of(schema)(x)), again, incoming)
    else:
        missing = [None] * (len(results) - len(incoming))
        expected = as_tuple(meaning(*incoming, *missing, *VALUES[schema]))
    for mine, wanted in zip(found, expected, strict=True):
        assert (mine is None) == (wanted is None)
        if mine is not None:
            torch.testing.assert_close(mine, wanted, rtol=1e-13, atol=0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("grad +", "it is not a formula: invalid syntax; a formula has names, numbers, lists"),
        ("", "it is not a formula: invalid syntax"),
        ("grad * aten::cos(x", "it is not a formula: '(' was never closed"),
        ("aten::neg(grad) grad", "it is not a formula: invalid syntax"),
        ("x.defined() ? grad : x", "it is not a formula: invalid syntax"),
        ("grads[x]", "'grads[x]' is not understood; a formula has names, numbers"),
        ("grads[-1]", "'grads[-1]' is not understood"),
        ("grads[True]", "'grads[True]' is not understood"),
        ("grad * 2j", "'2j' is not understood"),
        ("grad * b'2'", "\"b'2'\" is not understood"),
        ("grad * 1e999", "'1e999' is more than a number can be"),
        ("scaled(*grads)", "'*grads' is not understood"),
        ("scaled(grad, x, factor=2, factor=3)", "'scaled(grad, x, factor=2, factor=3)' gives an argument twice"),
        ("scaled(grad, x, **x)", "'scaled(grad, x, **x)' is not understood"),
        ("aten::sum.IntList(grad)", "'aten::sum' is not understood"),
        ("grad * y", "derivatives['x'] uses ['y']; there are ['grad', 'grad_0', "),
        ("grad * missing(x)", "derivatives['x'] calls ['missing']; which must be operators of the library"),
        ("grad * aten::missing(x)", "derivatives['x'] calls aten::missing; PyTorch has no such operator"),
        ("scaled(grad)", "scaled does not take these arguments; its schema is scaled(Tensor grad_output, Tensor by"),
        ("both(grad, x, x)", "both has 2 results, the key takes 1"),
    ],
)
def test_what_is_refused_when_it_is_registered(monkeypatch, way, formula, words):
    go(monkeypatch, way)
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        op_of(F, {"x": formula})
    assert "f(Tensor x) -> Tensor: derivatives['x']" in str(refusal.value)


@pytest.mark.parametrize(
    ("formula", "column"),
    [
        ("grad +", 6),
        ("", 0),
        ("grad * aten::cos(x", 16),
        ("aten::neg(grad) ? grad", 16),
        ("  grads[0] * grads[x]", 11),
        ("'\N{GREEK SMALL LETTER ALPHA}', grad**2", 5),
        ("grad * other + x", 7),
        ("aten::mul(grad, missing(x))", 16),
        ("grad * aten::missing(x)", 7),
        ("grad + x.missing()", 7),
        ("grad + grads.sym_size(0)", 7),
        ("grad.expand(x.sym_size(x))", 23),
        ("grad * scaled(grad)", 7),
        ("x * aten::neg(grad, 2)", 4),
        ("grad + x.mul_(2)", 7),
    ],
)
def test_a_caret_is_under_what_is_refused(formula, column):
    with pytest.raises(ValueError, match="derivatives") as refusal:
        op_of(F, {"x": formula})
    *_, line, caret = str(refusal.value).splitlines()
    assert line == f"    {formula.strip()}"
    assert caret == " " * (4 + column) + "^"


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (lambda grad, x: grad * x, "its derivatives are Python functions"),
        ("grad * 100000000000000000000", "the native Autograd library has no constant 100000000000000000000"),
        ("aten::gelu(grad, approximate='a\\nb')", "the native Autograd library has no constant 'a\\nb'"),
        ("grad * True", "f: only tensors and numbers can be added, multiplied or divided, in 'multiply'"),
        ("-None", "f: only tensors and numbers have a negative, in 'negate'"),
        ("aten::stack([grad, None])", "f: a list is of numbers or of tensors, in 'list 2'"),
        ("aten::add(grad, x, 2)", "f: no overload of aten::add takes these arguments, in 'call aten::add 3'"),
        ("aten::neg(aten::max(grad, 0))", "f: no overload of aten::neg takes these arguments, in 'call aten::neg 1'"),
        ("aten::max(grad, 0)", "f: a derivative has 2 values, its arguments take 1, in 'formula x 0'"),
        ("unknown_library::f(grad)", "f: there is no operator unknown_library::f, in 'call unknown_library::f 1'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_python_computes_alone(formula, reason):
    """It is understood, and may be right there; doctor says why."""
    assert why_not_native(op_of(F, {"x": formula})) == reason


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", ["a::b", "a b", " a", "", "\\'", "\N{GREEK SMALL LETTER ALPHA}", "end"])
def test_strings_arrive_as_they_are(monkeypatch, way, text):
    go(monkeypatch, way)
    op = op_of(F, {"x": f"aten::gelu(grad, approximate={text!r})"})
    assert (why_not_native(op) is None) == (way == "native")
    x = X.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        op(x).sum().backward()
