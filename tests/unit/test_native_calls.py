"""Functions in C++ that call operators: whatever is given, they do what PyTorch's own function does."""

import re
import sys
import threading
from types import SimpleNamespace

import muladd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opwheel._torch import private
from opwheel._torch.native import library_file
from opwheel.dispatch import Operator, calls
from opwheel.dispatch.registration import register, unregister
from torch.overrides import TorchFunctionMode

pytestmark = pytest.mark.skipif(isinstance(library_file("calls"), str), reason=str(library_file("calls")))

NAMESPACE = "test_native_calls"
_VALUES = {
    "Tensor": st.sampled_from([torch.ones(2), torch.nn.Parameter(torch.ones(1)), torch.ones(2, dtype=torch.int8)]),
    "float": st.floats(width=32),
    "int": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "str": st.text(max_size=2),
}
_OTHERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**63) - 1]),  # beyond int64
    st.floats(),
    st.text(max_size=2),
    st.just(b"bytes"),
    st.just([torch.ones(1)]),
    st.just(torch.ones(2).as_subclass(type("Own", (torch.Tensor,), {}))),
    st.just(torch.float32),
)


class _Drawn:
    """An operator with a drawn schema; its kernel keeps what it was given."""

    def __init__(self, types, keyword_only, returns):
        self.library = torch.library.Library(NAMESPACE, "DEF")
        names = [f"x{i}" for i in range(len(types))]
        parts = [f"{kind} {name}" for kind, name in zip(types, names, strict=True)]
        if keyword_only < len(parts):
            parts.insert(keyword_only, "*")
        self.library.define(f"f({', '.join(parts)}) -> ({', '.join(['Tensor'] * returns)})")
        self.library.impl("f", self._kernel, "CompositeExplicitAutograd")
        self.received = None
        self.results = [torch.full((1,), float(i)) for i in range(returns)]
        self.op = getattr(torch.ops, NAMESPACE).f.default

    def _kernel(self, *args, **kwargs):
        self.received = (args, kwargs)
        return self.results[0] if len(self.results) == 1 else tuple(self.results) or None

    def outcome(self, function, args, kwargs):
        """What the kernel received and what came back, or the error."""
        self.received = None
        try:
            result = function(*args, **kwargs)
        except Exception as error:  # any: both ways must end alike
            return type(error), str(error)
        return repr(self.received), repr(result), type(result)

    def close(self):
        self.library._destroy()


@st.composite
def _calls(draw):
    types = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=5))
    optional = draw(st.lists(st.booleans(), min_size=len(types), max_size=len(types)))
    keyword_only = draw(st.integers(0, len(types)))
    values = [
        draw(st.one_of(_VALUES[kind], st.none(), _OTHERS) if draw(st.integers(0, 5)) == 0 else _VALUES[kind])
        for kind in types
    ]
    # Mostly as many positional arguments as the schema says; a keyword is sometimes missing, moved or unknown.
    positional = draw(st.sampled_from([keyword_only] * 4 + [len(types), 0]))
    named = (
        draw(st.permutations(range(positional, len(types)))) if draw(st.booleans()) else range(positional, len(types))
    )
    kwargs = {f"x{i}": values[i] for i in named}
    if draw(st.integers(0, 9)) == 0:
        kwargs["unknown"] = 1.0
    if kwargs and draw(st.integers(0, 9)) == 0:
        kwargs.popitem()
    kinds = [f"{kind}?" if is_optional else kind for kind, is_optional in zip(types, optional, strict=True)]
    return kinds, keyword_only, draw(st.integers(0, 3)), values[:positional], kwargs


@given(_calls())
def test_any_call_ends_as_it_does_through_pytorch(call):
    kinds, keyword_only, returns, args, kwargs = call
    drawn = _Drawn(kinds, keyword_only, returns)
    try:
        function = calls.function(drawn.op)
        assert function is not private.operation(drawn.op)
        ours = drawn.outcome(function, args, kwargs)
        pytorchs = drawn.outcome(drawn.op, args, kwargs)
        if ours[0] is TypeError and pytorchs[0] is RuntimeError:
            check_sentence(ours[1], pytorchs[1])
        else:
            assert ours == pytorchs
        calls.install(drawn.op)
        assert ours == drawn.outcome(drawn.op, args, kwargs)
    finally:
        drawn.close()


def check_sentence(ours, pytorchs):
    """The one thing that is said in other words: an argument is of another type than the schema's."""
    expected, name, found = re.findall("'(.*?)'", pytorchs.partition("\n")[0])
    given, wanted = re.fullmatch(f"f: argument '{name}' is (.+), expected (.+)", ours).groups()
    assert given.split()[-1] == ("None" if found == "NoneType" else found)
    assert wanted.split()[1].removeprefix("torch.") == expected.removeprefix("Optional[").removesuffix("]")
    assert ("None" in wanted) == expected.startswith("Optional")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**100])
def test_integers_beyond_the_schema_s_are_refused_in_pytorchs_words(value):
    drawn = _Drawn(["int"], 1, 1)
    try:
        ours = drawn.outcome(calls.function(drawn.op), (value,), {})
        assert ours == drawn.outcome(private.operation(drawn.op), (value,), {})
        assert drawn.received is None
    finally:
        drawn.close()


@pytest.mark.parametrize("schema", ["f(Tensor[] x) -> Tensor", "f(Device x) -> Tensor", "f(Tensor x) -> int"])
def test_other_types_stay_with_pytorch(schema):
    library = torch.library.Library(NAMESPACE, "DEF")
    try:
        library.define(schema)
        op = getattr(torch.ops, NAMESPACE).f.default
        assert calls.function(op) is private.operation(op)
    finally:
        library._destroy()


@pytest.mark.parametrize("error", [RuntimeError, ValueError, IndexError, NotImplementedError, KeyError])
def test_errors_of_kernels_in_python_arrive_as_they_are(error):
    drawn = _Drawn(["Tensor"], 1, 1)
    try:
        raised = error("from the kernel")
        drawn.library.impl("f", lambda x: (_ for _ in ()).throw(raised), "CPU")
        with pytest.raises(error) as caught:
            calls.function(drawn.op)(torch.ones(1))
        assert caught.value is raised
    finally:
        drawn.close()


def test_errors_of_kernels_in_cpp_are_those_of_torch_ops():
    op = torch.ops.muladd.muladd.default
    torch_function = torch._C._get_operation_overload("muladd::muladd", "")[0]
    assert torch_function is not calls.function(op)
    arguments = (torch.ones(2), torch.ones(3), 1.0)
    with pytest.raises(RuntimeError) as through_torch:
        torch_function(*arguments)
    with pytest.raises(RuntimeError) as caught:
        calls.function(op)(*arguments)
    assert str(caught.value) == str(through_torch.value)


def test_modes_see_the_operator():
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(3)
    muladd.muladd(x, x, 1.0)
    with Mode():
        muladd.muladd(x, x, 1.0)
    assert seen == [torch.ops.muladd.muladd.default]


def test_torch_ops_makes_the_same_calls():
    """Also those of libraries that are opened in this process, which replace nobody's overloads."""
    assert private.operation(torch.ops.muladd.muladd.out) is calls.function(torch.ops.muladd.muladd.out)
    library = torch.library.Library("test_native_calls_held", "DEF")
    schemas = tuple(f"{name}(Tensor x) -> Tensor" for name in "fg")
    opened = SimpleNamespace(namespace="test_native_calls_held", schemas=schemas, abi=0)
    try:
        library.define("f(Tensor x) -> Tensor")
        library.define("g(Tensor x) -> Tensor")
        held = {torch.ops.test_native_calls_held.f.default: "f"}
        declared = [Operator(name, reference=torch.sin) for name in "fg"]
        register(opened, declared)
        op = torch.ops.test_native_calls_held.f.default
        assert held[op] == "f"
        assert private.operation(op) is not calls.function(op)
        op = torch.ops.test_native_calls_held.g.default
        assert private.operation(op) is calls.function(op)
    finally:
        unregister(opened)
        library._destroy()


def test_other_threads_run_during_a_call():
    x, out = torch.ones(1 << 20), torch.empty(1 << 20)  # the end of a new tensor would give up the lock as well
    go, ran = threading.Event(), threading.Event()
    function = calls.function(torch.ops.muladd.muladd.out)
    thread = threading.Thread(target=lambda: (go.wait(), ran.set()))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # seconds: from here on, a thread runs only when another gives up Python's lock
    try:
        thread.start()
        go.set()
        assert not ran.is_set()
        assert any((function(x, x, 1.0, out=out), ran.is_set())[1] for _ in range(1000))
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_nothing_is_kept():
    a, b, out = torch.ones(4), torch.ones(4), torch.empty(4)
    counts = [sys.getrefcount(value) for value in (a, b, out, None)]
    for _ in range(1000):
        assert muladd.muladd(a, b, 1.5, out=out) is out
        muladd.muladd(a, b, 1.5)
        with pytest.raises(RuntimeError):
            muladd.muladd(a, torch.ones(3), 1.5)
    assert [sys.getrefcount(value) for value in (a, b, out)] == counts[:3]
    assert abs(sys.getrefcount(None) - counts[3]) < 500


def test_python_s_autograd_leaves_calls_to_pytorch(monkeypatch):
    monkeypatch.setenv("OPWHEEL_AUTOGRAD", "python")
    assert calls._library.__wrapped__() == "OPWHEEL_AUTOGRAD=python"
