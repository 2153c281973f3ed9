"""Functions made from schemas and docstrings, of a library that is only made for these tests."""

import copy
import inspect
import pickle
import re
import sys
import traceback
import typing
from collections.abc import Sequence
from types import ModuleType

import pytest
import torch
from opwheel.dispatch import Operator, functions_of
from opwheel.dispatch.functions import make_functions
from opwheel.dispatch.overload import Overload
from torch import Tensor

NAMESPACE = "opwheel_test_functions"
KERNELS = {
    "plain(Tensor x, float w=2.0) -> Tensor": lambda x, w=2.0: x * w,
    "plain.out(Tensor x, float w=2.0, *, Tensor(a!) out) -> Tensor(a!)": lambda x, w=2.0, *, out: out.copy_(x * w),
    "plain_(Tensor(a!) x, float w=2.0) -> Tensor(a!)": lambda x, w=2.0: x.mul_(w),
    "times(Tensor x, Tensor w) -> Tensor": lambda x, w: x * w,
    "times.out(Tensor x, Tensor w, *, Tensor(a!) out) -> Tensor(a!)": lambda x, w, *, out: out.copy_(x * w),
    "four(Tensor x, Tensor y, Tensor z, Tensor type) -> Tensor": lambda x, y, z, type: x + y + z + type,  # noqa: A006
    "several(Tensor x, Tensor? y=None, *, int[2] size=1, bool flag=False, str mode='a', ScalarType? dtype=None) -> "
    "(Tensor, Tensor)": lambda x, y=None, *, size=1, flag=False, mode="a", dtype=None: (x + size[1], x * flag),
    "listed(Tensor[] tensors, Scalar by=1) -> Tensor[]": lambda tensors, by=1: [tensor * by for tensor in tensors],
    "nothing(int n) -> ()": lambda n: None,
    "number(Tensor x) -> Tensor": lambda x: x.clone(),
    "secret(Tensor x) -> Tensor": lambda x: x.clone(),
}
VARIANTS = {"plain": {"w": "times"}}


def overloads_of(schemas, namespace=NAMESPACE, variants=VARIANTS):
    names = [schema.partition("(")[0] for schema in schemas]
    return {
        name: Overload(
            Operator(
                base := name.partition(".")[0].removesuffix("_"),
                reference=None,
                doc="" if base == "secret" else f"Compute {base}.\n\n        Indented.",
                tensor_variant=variants.get(base, {}),
            ),
            namespace,
            schema,
        )
        for name, schema in zip(names, schemas, strict=True)
    }


@pytest.fixture(scope="module")
def functions():
    library = torch.library.Library(NAMESPACE, "DEF")
    for schema, kernel in KERNELS.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CPU" if "Tensor" in schema else "CompositeExplicitAutograd")
    module = sys.modules[NAMESPACE] = ModuleType(NAMESPACE)
    made = make_functions(NAMESPACE, overloads_of(KERNELS))
    vars(module).update(made)
    yield made
    del sys.modules[NAMESPACE]
    library._destroy()


def test_the_public_ones_have_a_docstring(functions):
    assert list(functions) == ["plain", "plain_", "times", "four", "several", "listed", "nothing", "number"]
    assert torch.equal(functions_of(NAMESPACE).secret(torch.ones(2)), torch.ones(2))
    assert functions["plain"].__doc__ == "Compute plain.\n\nIndented."
    assert ":func:`plain` in place" in functions["plain_"].__doc__


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("plain", "(x: T, w: float | T = 2.0, *, out: T | None = None) -> T"),
        ("plain_", "(x: T, w: float = 2.0) -> T"),
        ("four", "(x: T, y: T, z: T, type: T) -> T"),
        (
            "several",
            "(x: T, y: T | None = None, *, size: S[int] = (1, 1), flag: bool = False, mode: str = 'a', "  # noqa: ISC004
            "dtype: torch.dtype | None = None) -> tuple[T, T]",
        ),
        (
            "listed",
            "(tensors: S[T], by: int | float | complex | bool = 1) -> S[T]",
        ),
        ("nothing", "(n: int) -> None"),
    ],
)
def test_signatures(functions, name, signature):
    signature = re.sub(r"\bT\b", "torch.Tensor", signature).replace("S[", "collections.abc.Sequence[")
    assert str(inspect.signature(functions[name])) == signature


def test_they_look_like_functions_that_somebody_wrote(functions):
    function = functions["plain"]
    assert (function.__name__, function.__qualname__, function.__module__) == ("plain", "plain", NAMESPACE)
    assert typing.get_type_hints(function)["out"] == Tensor | None
    assert typing.get_type_hints(functions["listed"])["tensors"] == Sequence[Tensor]
    assert copy.deepcopy(function) is function
    assert pickle.loads(pickle.dumps(function)) is function
    assert inspect.getsource(function).startswith("def plain(x, w=2.0, *, out=None):\n")


def test_a_traceback_shows_the_line(functions):
    with pytest.raises(TypeError, match="plain: w is a str, expected a number or a") as caught:
        functions["plain"](torch.ones(2), "2")
    assert '_number(w, "plain: w"' in "".join(traceback.format_exception(caught.value))


def test_values(functions):
    x, out = torch.arange(3.0), torch.empty(3)
    assert torch.equal(functions["plain"](x), 2 * x)
    assert torch.equal(functions["plain"](x, 3, out=out), 3 * x)
    assert torch.equal(functions["plain"](x, x, out=out), x * x)
    assert torch.equal(functions["plain"](x=x, w=True), x)
    assert functions["plain_"](out, w=0.5) is out
    assert torch.equal(out, x * x / 2)
    assert torch.equal(functions["four"](x, x, x, type=x), 4 * x)
    assert torch.equal(functions["several"](x, size=[2, 5])[0], x + 5)
    assert torch.equal(functions["listed"]([x, x], 2)[1], 2 * x)
    assert functions["nothing"](3) is None
    with pytest.raises(TypeError, match="plain_: w is a Tensor, expected a number"):
        functions["plain_"](out, x)


def test_they_are_one_graph(functions):
    for name, kernel in (("plain", lambda x, w=2.0: x * w), ("times", torch.mul)):
        torch.library.register_fake(f"{NAMESPACE}::{name}", kernel)

    def program(x):
        return functions["plain"](x, functions["plain"](x, 3))

    torch._dynamo.reset()
    x = torch.arange(3.0)
    assert torch.equal(torch.compile(program, fullgraph=True, backend="eager")(x), 3 * x * x)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("f(Tensor lambda) -> Tensor", "cannot have the name 'lambda'"),
        ("f(Tensor _op_f) -> Tensor", "cannot have the name '_op_f'"),
    ],
)
def test_names_that_python_does_not_have(schema, words):
    with pytest.raises(ValueError, match=words):
        make_functions("m", overloads_of([schema]))


def test_an_out_variant_of_something_else():
    schemas = ["f(Tensor x) -> Tensor", "f.out(Tensor x, Tensor y, *, Tensor(a!) out) -> Tensor(a!)"]
    with pytest.raises(ValueError, match="must be those of f, and out"):
        make_functions("m", overloads_of(schemas))


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ({"w": "h"}, "no operator 'h'"),
        ({"v": "g"}, "does not take the arguments"),
        ({"x": "g"}, "does not take the arguments"),
        ({"w": "f"}, "does not take the arguments"),
        ({"w": "g"}, "'g' has no out variant"),
    ],
)
def test_a_tensor_variant_that_does_not_fit(variant, words):
    schemas = [
        "f(Tensor x, float w) -> Tensor",
        "f.out(Tensor x, float w, *, Tensor(a!) out) -> Tensor(a!)",
        "g(Tensor x, Tensor w) -> Tensor",
    ]
    with pytest.raises(ValueError, match=words):
        make_functions("m", overloads_of(schemas, variants={"f": variant}))
