"""What cannot be carried is refused when it is registered: with the schema, what is wrong with it, and a way out."""

import itertools
import re

import pytest
import torch
from opwheel.dispatch import Elementwise, Opaque, Operator, Rows, register_python

_names = (f"waves_refused_{number}" for number in itertools.count())


def declare(schema, **claims):
    name = schema.partition("(")[0]
    claims.setdefault("reference", lambda *args, **kwargs: args)
    return register_python(next(_names), {schema: lambda *a, **k: None}, [Operator(name, **claims)])


@pytest.mark.parametrize(
    ("schema", "claims", "words"),
    [
        ("part(Tensor(a) x) -> Tensor(a)", {}, ["'x'", "view", "return a new tensor"]),
        ("put(Tensor(a!) x) -> Tensor(a!)", {}, ["result 0", "'-> ()'"]),
        ("put_(Tensor(a!) x) -> Tensor(a!)", {"rule": Opaque()}, ["'-> ()'"]),
        ("split(Tensor x) -> Tensor[]", {}, ["result 0", "fixed number of tensors"]),
        ("count(Tensor x) -> int", {}, ["result 0 is a int"]),
        ("pick(Dict(str, Tensor) x) -> Tensor", {}, ["'x'", "Dict"]),
        ("make(int size) -> Tensor", {}, ["no tensor", "Device device"]),
        ("f(Tensor x, int dim) -> Tensor", {"rule": Elementwise()}, ["'dim'", "Opaque()"]),
        ("f(Tensor x, float t=1.0) -> Tensor", {"rule": Elementwise()}, ["'t'", "default value"]),
        ("f(Tensor x, *, Tensor y) -> Tensor", {"rule": Elementwise()}, ["'y'", "keyword-only"]),
        ("f(Tensor x, Tensor? y) -> Tensor", {"rule": Elementwise()}, ["'y'", "Optional[Tensor]"]),
        ("f(Tensor x, Tensor(a!) y) -> Tensor", {"rule": Elementwise()}, ["writes nowhere else"]),
        ("f(Tensor x) -> ()", {"rule": Elementwise()}, ["results", "Tensors"]),
        ("f(Tensor x) -> Tensor", {"rule": Rows(y=1)}, ["Rows(y=1)", "'y'"]),
        ("f(Tensor x) -> Tensor", {"rule": Rows()}, ["names no argument"]),
        ("f(Tensor[] x) -> Tensor", {"rule": Rows(x=1)}, ["'x'"]),
        ("f(Tensor(a!) x) -> ()", {"rule": Rows(x=1)}, ["writes", "Opaque()"]),
        ("f(Tensor x) -> Tensor", {"derivatives": {"y": "grad"}}, ["['y']", "['x']"]),
        ("f(Tensor x) -> Tensor", {"derivatives": {"x": "grad * z"}}, ["['z']", "'grad'"]),
        ("f(Tensor x) -> Tensor", {"derivatives": {"x": "g(grad)"}}, ["['g']", "operators of the library"]),
        ("f(Tensor x) -> Tensor", {"derivatives": {"x": "grad if x else x"}}, ["not understood"]),
        ("f(Tensor x) -> Tensor", {"derivatives": {"x": "grad *"}}, ["not a formula"]),
        ("f(Tensor x) -> Tensor", {"derivatives": {"x": lambda grad, z: grad * z}}, ["['z']"]),
        ("f(Tensor x, Tensor y) -> Tensor", {"derivatives": {"(x, y": "grad"}}, ["'(x, y'", "do not match"]),
        ("f(Tensor x, Tensor y) -> Tensor", {"derivatives": {"x, y)": "grad"}}, ["'x, y)'", "do not match"]),
        ("f(Tensor x) -> Tensor", {"not_differentiable": ("y",)}, ["['y']", "['result']"]),
        ("f(Tensor x, Generator? g) -> Tensor", {}, ["random", "derivatives=None"]),
        ("f(Tensor x, Generator? g) -> Tensor", {"derivatives": {"x": "grad * x"}}, ["random", "mask"]),
        *(
            ("f(Tensor x, Tensor[] xs, int n) -> Tensor", {"invariant": claims}, words)
            for claims, words in {
                "batches": ({"batches": True}, ["'batches'", "there are batch, prefix"]),
                "False": ({"threads": False}, ["'threads'", "expected True"]),
                "no rule": ({"batch": True}, ["along which dimensions (Opaque())", "by argument and result"]),
                "no dimensions": ({"order": True}, ["by argument, such"]),
                "a number": ({"prefix": 0}, ["not understood", "a tuple of them"]),
                "nothing": ({"prefix": ()}, ["not understood"]),
                "an empty one": ({"prefix": ({"x": 0, "result": 0}, {})}, ["not understood"]),
                "unknown": ({"batch": {"y": 0, "result": 0}}, ["'y' is no argument and result", "name some of x, xs"]),
                "a list": ({"batch": {"xs": 0, "result": 0}}, ["'xs' is a list of tensors"]),
                "no dimension": ({"batch": {"x": True, "result": 0}}, ["'x' is True", "such as 0"]),
                "of a result": ({"batch": {"x": 0, "result": "0"}}, ["'result' is '0'"]),
                "no tensor": ({"batch": {"n": 2, "result": 0}}, ["names no tensor argument"]),
                "no result": ({"batch": {"x": 0}}, ["names no result", "of result"]),
                "a sum's": ({"order": {"x": -2, "result": 0}}, ["'result' is no argument;"]),
                "from the start": ({"order": {"x": 0}}, ["'x' is counted from the start", "as -2"]),
            }.values()
        ),
        ("f(Tensor x) -> Tensor", {"invariant": {"grad": True}, "derivatives": None}, ["derivatives=None"]),
        ("f(Tensor x, Generator? g) -> Tensor", {"invariant": {"repeat": True}, "derivatives": None}, ["random"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused(schema, claims, words):
    with pytest.raises(ValueError, match="waves_refused_") as refusal:
        declare(schema, **claims)
    for word in (schema, *words):
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("functional", "variant", "words"),
    [
        ("f(Tensor x) -> Tensor", "f_(Tensor(a!) x) -> ()", ["no other variant than 'f.out'"]),
        ("f(Tensor x) -> Tensor", "f.Scalar(Tensor x) -> Tensor", ["no other variant than 'f.out'"]),
        ("f(Tensor x) -> Tensor", "f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", ["returns nothing"]),
        ("f(Tensor x) -> Tensor", "f.out(Tensor x, Tensor(a!) out) -> ()", ["'out'", "keyword-only"]),
        ("f(Tensor x) -> Tensor", "f.out(Tensor x, *, Tensor(a!) y) -> ()", ["last argument, 'out'"]),
        ("f(Tensor x) -> Tensor", "f.out(Tensor(a!) x, *, Tensor(b!) out) -> ()", ["last argument, 'out'"]),
        ("f(Tensor x) -> Tensor", "f.out(Tensor x, int n, *, Tensor(a!) out) -> ()", ["those of f, and out"]),
        ("f(Tensor x) -> (Tensor, Tensor)", "f.out(Tensor x, *, Tensor(a!) out) -> ()", ["has 2 results"]),
    ],
)
@pytest.mark.parametrize("rule", [Opaque(), Rows(x=1)])
def test_refused_variants(functional, variant, words, rule):
    with pytest.raises(ValueError, match="f") as refusal:
        register_python(
            next(_names), {functional: torch.sin, variant: torch.sin}, [Operator("f", reference=torch.sin, rule=rule)]
        )
    for word in (variant, *words):
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", "", "the name of a schema"),
        ("reference", None, "a function"),
        ("rule", Rows, "a rule such as Opaque()"),
        ("derivatives", "grad", "a dict from names of tensors to formulas"),
        ("derivatives", {"x": 2.0}, "a dict from names of tensors to formulas"),
        ("not_differentiable", "result", "a tuple of names"),
        ("training", None, "the name of an operator"),
        ("autocast", "fp32", "'promote' or 'lower_precision' or 'float32'"),
        ("compile", "kernal", "'fuse' or 'kernel'"),
        ("flops", "1", "a number or a function"),
        ("tensor_variant", ("t", "f"), "a dict from names of arguments"),
        ("fake", "f", "a function, or None"),
        ("doc", None, "a docstring"),
    ],
)
def test_fields_that_are_not_what_they_are_to_be(field, value, expected):
    fields = {"name": "f", "reference": lambda x: x} | {field: value}
    with pytest.raises(ValueError, match=f"::{fields['name']}: {field} is .*, expected {re.escape(expected)}"):
        register_python(next(_names), {"f(Tensor x) -> Tensor": lambda x: x}, [Operator(**fields)])


@pytest.mark.parametrize("operators", [[Operator("f", reference=abs)] * 2, ["f"], [None]])
def test_what_is_no_list_of_operators(operators):
    with pytest.raises(ValueError, match=r"two declarations of 'f'|expected an opwheel.Operator"):
        register_python(next(_names), {"f(Tensor x) -> Tensor": lambda x: x}, operators)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("double(grad)", "derivatives['x']: double does not take these arguments; its schema is double("),
        ("double(grad, x, x, x)", "does not take these arguments"),
        ("double(grad, x, other=x)", "does not take these arguments"),
        ("double(grad, x, grad_output=x)", "does not take these arguments"),
        ("double(grad, x)", "derivatives['x']: double has 2 results, the key takes 1"),
        ("double(double(grad), x)", "does not take these arguments"),
    ],
)
def test_formulas_that_the_called_operator_does_not_fit(formula, words):
    schemas = {
        "f(Tensor x) -> Tensor": abs,
        "double(Tensor grad_output, Tensor x, int n=1) -> (Tensor, Tensor)": divmod,
    }
    operators = [Operator("f", reference=abs, derivatives={"x": formula}), Operator("double", reference=divmod)]
    with pytest.raises(ValueError, match=re.escape(words)):
        register_python(next(_names), schemas, operators)


def test_a_schema_without_a_result_that_writes_nowhere():
    with pytest.raises(
        ValueError, match=r"returns nothing and writes nowhere; mark what it writes to, as Tensor\(a!\)"
    ):
        declare("scale_(Tensor x, float factor) -> ()")


def test_a_result_whose_gradient_no_formula_uses():
    """It goes through the reference; integers have none, and what is named in not_differentiable has none."""

    def f(x):
        return x.sin(), x.cos(), x.argsort()

    def kernel(x):
        return f(x.detach())

    schema = "f(Tensor x) -> (Tensor y, Tensor z, Tensor order)"
    x = torch.randn(3, requires_grad=True)
    formulas = {"x": "grad_y * aten::cos(x)"}
    for fixed in ((), ("z",)):
        operator = Operator("f", reference=f, derivatives=formulas, not_differentiable=fixed, doc="f")
        function = register_python(next(_names), {schema: kernel}, [operator])["f"]
        if fixed:
            assert [result.requires_grad for result in function(x)] == [True, False, False]
        else:
            y, z, _ = function(x)
            (found,) = torch.autograd.grad((y * 2 + z * 3).sum(), x)
            torch.testing.assert_close(found, (2 * x.cos() - 3 * x.sin()).detach())


def test_defaults_of_every_type():
    def f(x, k, s, d, m, *, dtype, device, layout, flag, text, n):
        seen.append((k, s, d, m, dtype, device, layout, flag, text, n))
        return x.clone()

    seen = []
    schema = (
        "f(Tensor x, int[2] k=[1, 2], Scalar s=1.5, float d=1e-05, int? m=None, *, ScalarType dtype=long, "
        "Device device='cpu', Layout layout=strided, bool flag=True, str text='a', SymInt n=3) -> Tensor"
    )
    functions = register_python(
        next(_names), {schema: f}, [Operator("f", reference=lambda x, *_, **__: x.clone(), doc="f")]
    )
    x = torch.ones(2)
    functions["f"](x)
    functions["f"](x, (3, 4), d=2, flag=False)
    common = (torch.int64, torch.device("cpu"), torch.strided)
    assert seen[0] == ([1, 2], 1.5, 1e-05, None, *common, True, "a", 3)
    assert seen[1] == ([3, 4], 1.5, 2.0, None, *common, False, "a", 3)
    with pytest.raises(TypeError, match="missing"):
        functions["f"]()
