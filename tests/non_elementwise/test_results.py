"""What a kernel in Python returns is what its operator promises, or an error: wrong results on every path there is."""

import itertools
import re
import warnings

import pytest
import torch
from opwheel.dispatch import (
    Elementwise,
    Opaque,
    Operator,
    Rows,
    implement_functions,
    overloads_of,
    register_python,
    results,
)

from tests.recording import Recorded

from .declared import declare

_names = (f"waves_results_{number}" for number in itertools.count())
_kept = []  # registrations last as long as these
SCHEMAS = ("f(Tensor x) -> (Tensor y, Tensor z)", "g(Tensor x) -> Tensor")


class Columns(Opaque):
    """A rule of one's own that claims strides: results are laid out by columns, and are the kernel's own."""

    def fake(self, overload, values):
        made = super().fake(overload, values)
        changed = tuple(by_columns(one) for one in (made if isinstance(made, tuple) else (made,)))
        return changed if len(changed) > 1 else changed[0]

    def python_kernel(self, overload, function):
        return lambda *args: function(*args)


def by_columns(x):
    return x.mT.contiguous().mT if x.dim() > 1 else x.contiguous()


def with_register_python(namespace, rule, kernels):
    operators = [Operator(name, reference=REFERENCES[name], rule=rule, derivatives=None) for name in kernels]
    register_python(namespace, dict(zip(SCHEMAS, kernels.values(), strict=True)), operators)


def with_implement_functions(namespace, rule, kernels):
    definitions = torch.library.Library(namespace, "DEF")
    for schema in SCHEMAS:
        definitions.define(schema)
    declare(namespace, SCHEMAS, [Operator(n, reference=REFERENCES[n], rule=rule, derivatives=None) for n in kernels])
    target = torch.library.Library(namespace, "IMPL", "CPU")
    _kept.extend((definitions, target))
    implement_functions(target, overloads_of(target).values(), "cpu", kernels)


REFERENCES = {"f": lambda x: (x.clone(), x.clone()), "g": lambda x: x.clone()}
RULES = {"Opaque": Opaque(), "Rows": Rows(x=1), "Elementwise": Elementwise(), "Columns": Columns()}
PATHS = {
    f"{register.__name__}, {name}": (register, rule)
    for register, (name, rule) in itertools.product((with_register_python, with_implement_functions), RULES.items())
}
OTHER = {torch.float16: torch.bfloat16, torch.float32: torch.float16, torch.float64: torch.float32}
# What is done to a right result, of which the argument is given, too.
WRONG = {
    "a narrower dtype": lambda y, x: y.to(OTHER[x.dtype]),
    "a wider dtype": lambda y, x: y.to(torch.float64 if x.dtype is not torch.float64 else torch.complex128),
    "integers": lambda y, x: y.int(),
    "complex": lambda y, x: torch.complex(y.double(), y.double()),
    "its first element": lambda y, x: y.flatten()[:1],
    "its first row": lambda y, x: y[:1],
    "a column less": lambda y, x: y[..., 1:],
    "a dimension more": lambda y, x: y.unsqueeze(0),
    "squeezed": lambda y, x: y.squeeze(),
    "flat": lambda y, x: y.flatten(),
    "on meta": lambda y, x: y.to("meta"),
    "sparse": lambda y, x: y.to_sparse(),
    "in other strides": lambda y, x: y.mT.contiguous().mT if y.dim() > 1 else y,
    "with gaps": lambda y, x: torch.stack((y, y), -1)[..., 0],
    "expanded": lambda y, x: y[:1].expand(y.shape),
    "the argument": lambda y, x: x,
    "a view of the argument": lambda y, x: x.view(x.shape),
    "None": lambda y, x: None,
    "a number": lambda y, x: 3.0,
    "an array": lambda y, x: y.float().numpy(),
    "in a list": lambda y, x: [y],
    "in a tuple": lambda y, x: (y,),
    "twice": lambda y, x: (y, y),
    "thrice": lambda y, x: (y, y, y),
}
SHAPES = ((3, 4), (1, 4), (2, 1), (5,), (1,), (0, 3))


def kernels_of(path, place, change):
    """The operators of a namespace whose kernels return something wrong while ``change`` says so."""
    register, rule = PATHS[path]
    laid_out = by_columns if rule is RULES["Columns"] else torch.clone

    def two(x):
        pair = [laid_out(x.clone()), laid_out(x.clone())]
        if change["on"]:
            pair[place] = WRONG[change["name"]](pair[place], x)
        return tuple(pair)

    def one(x):
        result = laid_out(x.clone())
        return WRONG[change["name"]](result, x) if change["on"] else result

    namespace = next(_names)
    register(namespace, rule, {"f": two, "g": one})
    return namespace


def check_call(namespace, name, x, rule):
    """That the call raises and says what, or gives right results; which of them."""
    operator = getattr(getattr(torch.ops, namespace), name)
    before = x.clone()
    try:
        found = operator(x)
    except RuntimeError as error:
        text = str(error)
        assert re.search(rf"(^|::|\] ){name}: its kernel returned .*(expected|the schema has) ", text), text
        assert f"the kernel is {__name__}.kernels_of" in text, text
        return False
    expected = REFERENCES[name](x)
    if name == "g":
        found, expected = (found,), (expected,)
    for result, wanted in zip(found, expected, strict=True):
        assert (result.dtype, result.shape, result.device) == (wanted.dtype, wanted.shape, wanted.device)
        laid_out = by_columns(wanted) if isinstance(rule, Columns) else wanted
        assert not result.numel() or [s for s, n in zip(result.stride(), result.shape, strict=True) if n > 1] == [
            s for s, n in zip(laid_out.stride(), laid_out.shape, strict=True) if n > 1
        ]
        result.add_(1)  # it is nobody else's memory
    assert x.equal(before)
    return True


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("path", PATHS)
def test_wrong_results_are_refused_or_made_right(path, wrong):
    """At the first call of a kind, also after right ones of another."""
    rule = PATHS[path][1]
    for place in (0, 1):
        change = {"on": False, "name": wrong}
        namespace = kernels_of(path, place, change)
        for name, dtype in itertools.product(REFERENCES, OTHER):
            assert check_call(namespace, name, torch.ones(2, 2, 2, dtype=dtype), rule)
        change["on"] = True
        for name, dtype, shape in itertools.product(REFERENCES, OTHER, SHAPES):
            check_call(namespace, name, torch.randn(shape, dtype=torch.float64).to(dtype), rule)


def registered(schema, kernel, **fields):
    """An operator of a namespace of its own, and the namespace."""
    namespace = next(_names)
    name = schema.partition("(")[0]
    register_python(namespace, {schema: kernel}, [Operator(name, derivatives=None, **fields)])
    return getattr(getattr(torch.ops, namespace), name), namespace


def test_a_dtype_that_meta_tensors_do_not_have():
    f, namespace = registered("f(Tensor x) -> Tensor", lambda x: x.double(), reference=torch.sin)
    with pytest.raises(RuntimeError) as caught:
        f(torch.ones(3))
    assert str(caught.value) == (
        f"{namespace}::f: its kernel returned float64[3] on cpu as 'result', expected float32[3] on cpu, as the "
        f"operator's reference gives; the kernel is {__name__}.test_a_dtype_that_meta_tensors_do_not_have.<locals>."
        "<lambda>"
    )
    assert f(torch.ones(3, dtype=torch.float64)).dtype is torch.float64


def test_a_shape_that_broadcasts():
    f, _ = registered("f(Tensor x) -> Tensor", lambda x: x[:1], reference=torch.clone)
    with pytest.raises(RuntimeError, match=r"returned float32\[1\] on cpu as 'result', expected float32\[3\] on cpu"):
        f(torch.ones(3))
    assert f(torch.ones(1)).shape == (1,)


class TestWhichCallsAreCompared:
    @staticmethod
    def counted(monkeypatch, setting, namespace=""):
        calls = []
        namespace = namespace or f"waves_compared_{setting}".lower()
        if setting is not None:
            monkeypatch.setenv(f"{namespace.upper()}_CHECK", setting)

        def reference(x, factor, mode):
            calls.append(x.device.type)
            return x * factor

        schema = "f(Tensor x, float factor, str mode) -> Tensor"
        operator = Operator("f", reference=reference, derivatives=None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            register_python(namespace, {schema: lambda x, factor, mode: x * factor}, [operator])
        return getattr(torch.ops, namespace).f, calls, caught

    def test_the_first_of_each_kind(self, monkeypatch):
        f, calls, _ = self.counted(monkeypatch, None)
        kinds = [
            (torch.ones(3), 2.0, "a"),
            (torch.ones(3, dtype=torch.float64), 2.0, "a"),
            (torch.ones(1), 2.0, "a"),
            (torch.ones(0), 2.0, "a"),
            (torch.ones(2, 2), 2.0, "a"),
            (torch.ones(3), 2.0, "b"),
        ]
        for number, (x, factor, mode) in enumerate(kinds):
            f(x, factor, mode)
            assert calls == ["meta"] * (number + 1)
        for x, factor, mode in kinds:
            f(x.repeat_interleave(2, 0) if x.shape[0] > 1 else x, factor + 1, mode)
        assert len(calls) == len(kinds)

    def test_not_without_end(self, monkeypatch):
        monkeypatch.setattr(results, "MOST_KINDS", 2)
        f, calls, _ = self.counted(monkeypatch, None, "waves_compared_few")
        for mode in ("a", "b", "c", "d", "c"):
            f(torch.ones(3), 2.0, mode)
        assert len(calls) == 2

    def test_every_one(self, monkeypatch):
        f, calls, _ = self.counted(monkeypatch, "1")
        for number in range(1, 4):
            f(torch.ones(3), 2.0, "a")
            assert len(calls) == number

    def test_none(self, monkeypatch):
        f, calls, _ = self.counted(monkeypatch, "0")
        f(torch.ones(3), 2.0, "a")
        assert not calls

    def test_a_setting_that_is_neither(self, monkeypatch):
        f, calls, caught = self.counted(monkeypatch, "yes")
        (warning,) = caught
        message = "WAVES_COMPARED_YES_CHECK='yes' is ignored: expected 0 or 1 [OPWHEEL-E011]"
        assert str(warning.message).startswith(message)
        assert warning.filename == __file__
        f(torch.ones(3), 2.0, "a")
        assert len(calls) == 1

    def test_a_call_that_was_wrong_is_compared_again(self):
        f, _ = registered("f(Tensor x) -> Tensor", lambda x: x[:1], reference=torch.clone)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="its kernel returned"):
                f(torch.ones(3))

    def test_none_where_the_reference_looks_at_values(self):
        f, _ = registered("f(Tensor x) -> Tensor", lambda x: x * 1, reference=lambda x: x * int(x.sum().item() > 0))
        assert f(torch.ones(3)).tolist() == [1, 1, 1]


def test_sizes_that_depend_on_values():
    def fake(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    schema = "f(Tensor x) -> Tensor"
    fields = {"reference": lambda x: x.nonzero()[:, 0], "fake": fake}
    right, _ = registered(schema, lambda x: x.nonzero()[:, 0], **fields)
    assert right(torch.tensor([0.0, 1.0, 2.0])).tolist() == [1, 2]
    wrong, _ = registered(schema, lambda x: x.nonzero(), **fields)
    with pytest.raises(RuntimeError, match=r"returned int64\[2, 1\] on cpu as 'result', expected int64\[u0\] on cpu"):
        wrong(torch.tensor([0.0, 1.0, 2.0]))


def test_nobody_sees_the_comparison():
    """Neither random numbers nor modes."""

    def noise(x, generator):
        return x + torch.rand(x.shape, generator=generator)

    schema = "f(Tensor x, Generator? generator) -> Tensor"
    f, namespace = registered(schema, noise, reference=noise)
    torch.manual_seed(0)
    with Recorded() as recorded:
        first = f(torch.zeros(3), None)
    torch.manual_seed(0)
    assert f(torch.zeros(3), None).equal(first)
    assert f"{namespace}.f" in recorded.names
    assert "aten.rand" not in recorded.names
    assert f(torch.zeros(3), torch.Generator().manual_seed(1)).shape == (3,)


def test_results_may_be_on_any_device_of_the_arguments_or_on_a_named_one():
    made, _ = registered(
        "f(int n, Device device) -> Tensor",
        lambda n, device: torch.ones(n, device="meta"),
        reference=lambda n, device: torch.ones(n, device=device),
    )
    with pytest.raises(RuntimeError, match=r"returned float32\[3\] on meta as 'result', expected float32\[3\] on cpu"):
        made(3, torch.device("cpu"))


class TestWriting:
    """Operators that write into their arguments."""

    @staticmethod
    def operator(kernel, schema="f(Tensor x, Tensor(a!) y) -> ()", reference=lambda x, y: y.copy_(x * 2)):
        return registered(schema, kernel, reference=reference)

    @pytest.mark.parametrize("answer", [lambda x, y: x * 2, lambda x, y: x, lambda x, y: (y.copy_(x * 2), 3)])
    def test_a_result_that_would_be_lost(self, answer):
        f, _ = self.operator(answer)
        with pytest.raises(RuntimeError, match=r"\[OPWHEEL:LAUNCH\] .*would be lost, expected None: .* into 'y'"):
            f(torch.ones(3), torch.zeros(3))

    @pytest.mark.parametrize("answer", [lambda y: None, lambda y: y, lambda y: y[1:]])
    def test_what_was_written_to_may_be_returned(self, answer):
        f, _ = self.operator(lambda x, y: answer(y.copy_(x * 2)))
        y = torch.zeros(3)
        assert f(torch.ones(3), y) is None
        assert y.tolist() == [2, 2, 2]

    def test_an_argument_that_gets_another_shape(self):
        f, _ = self.operator(lambda x, y: y.resize_(5).fill_(1))
        with pytest.raises(RuntimeError, match=r"left 'y' as float32\[5\] on cpu, expected float32\[3\] on cpu"):
            f(torch.ones(3), torch.zeros(3))

    def test_an_out_variant(self):
        namespace = next(_names)
        schemas = {
            "f(Tensor x) -> Tensor": torch.sin,
            "f.out(Tensor x, *, Tensor(a!) out) -> ()": lambda x, out: torch.sin(x),
        }
        register_python(namespace, schemas, [Operator("f", reference=torch.sin, derivatives=None)])
        with pytest.raises(RuntimeError, match="would be lost"):
            getattr(torch.ops, namespace).f.out(torch.ones(3), out=torch.zeros(3))

    def test_one_that_has_a_result_too(self):
        schema = "f(Tensor x, Tensor(a!) y) -> Tensor"
        f, _ = self.operator(lambda x, y: y.copy_(x * 2).double(), schema, lambda x, y: y.copy_(x * 2).clone())
        with pytest.raises(RuntimeError, match=r"^\[OPWHEEL:LAUNCH\] .*returned float64\[3\] on cpu"):
            f(torch.ones(3), torch.zeros(3))
