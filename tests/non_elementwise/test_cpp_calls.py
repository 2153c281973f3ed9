"""Kernels in C++ call other operators (opwheel/call.h): of another library, of PyTorch, and some defined here.

Each operator of cpp/types.h is called by a kernel with the same signature, so that what arrives there is what a call
passes on.
"""

import ctypes
import gc
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from opwheel.memory.usage import kept_by
from opwheel.registry import Backend, callees
from opwheel.registry.loading import Loaded

from tests.non_elementwise import cpp_library
from tests.non_elementwise.test_cpp_types import CAN_BE_NONE, EVERY_VALUE, FIRST, VALUES, text

ROOT = Path(__file__).parents[2]
X = torch.tensor([1.0, 2.0])


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    cpp_library.open_types()
    output = tmp_path_factory.mktemp("calls") / "libcalls.so"
    return ctypes.CDLL(str(cpp_library.build(cpp_library.SOURCES / "calls.cpp", output, torch_target="2.13")))


@pytest.fixture(params=["native", "Python"])
def ops(request, library, monkeypatch):
    """The operators whose kernels call others, with what the registry gives them with a native library and without."""
    if request.param == "Python":
        monkeypatch.setattr(callees, "open_library", lambda name: f"no {name} in this test")
    callees._functions.cache_clear()
    callees.connect(library)
    yield torch.ops.waves_calls
    callees._functions.cache_clear()


@pytest.fixture
def define():
    """Defines operators of the namespace that the kernels call, until the test is over."""
    library = torch.library.Library("waves_callee", "FRAGMENT")

    def add(schema, kernel):
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CPU")

    add.forget = library._destroy
    yield add
    library._destroy()


@pytest.mark.parametrize(("name", "value", "expected"), VALUES, ids=lambda v: str(v)[:30])
def test_value(ops, name, value, expected):
    assert text(getattr(ops, name)(X, value)) == expected


@pytest.mark.parametrize("name", CAN_BE_NONE)
def test_optional(ops, name):
    _, value, expected = FIRST[name]
    assert text(getattr(ops, f"optional_{name}")(X, None)) == "None"
    assert text(getattr(ops, f"optional_{name}")(X, value)) == expected


# PyTorch's C functions never free the copy of a string that they make (torch 2.13): as many bytes at each call.
WITHOUT_STRINGS = [(name, value) for name, value in EVERY_VALUE if "string" not in name]


@pytest.mark.parametrize(("name", "value"), WITHOUT_STRINGS, ids=lambda v: str(v)[:30])
def test_nothing_stays_allocated(ops, name, value):
    cpp_library.check_nothing_stays_allocated(getattr(ops, name).default, X, value)


def test_results(ops):
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    torch.testing.assert_close(ops.mm(a, b), a @ b)
    for given, expected in zip(ops.norm(a), torch.native_layer_norm(a, (4,), None, None, 1e-5), strict=True):
        torch.testing.assert_close(given, expected)
    y, mask = ops.dropout(a, 0.5)
    torch.testing.assert_close(y, a * mask / 0.5)


def test_arguments_are_written(ops, define):
    def fill_both(x, y):
        x.fill_(1)
        y.fill_(2)

    define("fill_both(Tensor(a!) x, Tensor(b!) y) -> ()", fill_both)
    x, y = torch.tensor([-1.0, 3.0]), torch.zeros(2)
    assert ops.relu_(x) is x
    assert x.tolist() == [0, 3]
    assert ops.fill_both(x, y) is None
    assert (x.tolist(), y.tolist()) == ([1, 1], [2, 2])


@pytest.mark.parametrize("name", ["mm", "norm", "relu_"])
def test_tensors_are_given_back(ops, name):
    x = torch.randn(3, 3)
    watched = weakref.ref(x)
    results = getattr(ops, name)(*[x] * (2 if name == "mm" else 1))
    watched_too = weakref.ref(results if isinstance(results, torch.Tensor) else results[0])
    del x, results
    gc.collect()
    assert (watched(), watched_too()) == (None, None)


DEFAULTS = [
    ("float k=4", 4.0),
    ("float k=1e-6", 1e-6),
    ("float k=-0.1", -0.1),
    ("float k=1e300", 1e300),
    ("float? k=0.5", 0.5),
    ("float? k=None", None),
    ("int k=-3", -3),
    ("int k=9223372036854775807", 2**63 - 1),
    ("SymInt k=4", 4),
    ("int? k=7", 7),
    ("bool k=True", True),
    ("bool k=False", False),
    ("bool? k=True", True),
    ("str k='waves, a=(b'", "waves, a=(b"),
    ("str k='a\"b'", 'a"b'),
    ("str k=''", ""),
    ("str? k='ab'", "ab"),
    ("int[] k=[]", []),
    ("int[] k=[1, -2]", [1, -2]),
    ("int[2] k=3", [3, 3]),
    ("int[2] k=[1, 2]", [1, 2]),
    ("SymInt[] k=[1, 2]", [1, 2]),
    ("float[] k=[0.1, 2.0]", [0.1, 2.0]),
    ("bool[] k=[True, False]", [True, False]),
    ("Tensor? k=None", None),
    ("int[]? k=None", None),
    ("ScalarType? k=None", None),
    ("MemoryFormat? k=None", None),
    ("Device? k=None", None),
]


@pytest.fixture(scope="session")
def callers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("callers")
    return cpp_library.build(cpp_library.SOURCES / "callers.cpp", folder / "libcallers.so")


def test_a_backend_s_library_is_connected_when_it_is_opened(callers, monkeypatch):
    connected = []
    monkeypatch.setattr(callees, "connect", connected.append)
    backend = Backend("acme", "cpu", "CPU", libraries=[callers])
    Loaded().open(backend, "waves_callee", ())
    assert [library._name for library in connected] == [str(callers)]


@pytest.fixture
def first_call(ops, callers, tmp_path):
    """Calls ``waves_callee::f(x)``, or ``g(x, 3, [1, 2])``, with x = [2.0]; the result, or the error's words."""
    copy = tmp_path / "libcopy.so"
    shutil.copy(callers, copy)
    library = ctypes.CDLL(str(copy))
    callees.connect(library)

    def call(name="f"):
        function = getattr(library, f"call_{name}")
        function.restype = ctypes.c_char_p
        return function().decode()

    return call


@pytest.mark.parametrize(("argument", "value"), DEFAULTS, ids=lambda v: str(v))
def test_a_default_is_filled_in(first_call, define, argument, value):
    seen = []

    def kernel(x, k="the default"):  # PyTorch leaves out what is the schema's default, and nothing else
        seen.append(k)
        return x + 1

    define(f"f(Tensor x, {argument}) -> Tensor", kernel)
    assert first_call() == first_call() == "3.000000"
    assert seen in (["the default"] * 2, [value] * 2)  # it never leaves out lists of SymInt
    assert torch._C._get_schema("waves_callee::f", "").arguments[1].default_value == value


@pytest.mark.parametrize("argument", ["float k=4", "int[2] k=3", "float? k=0.5"])
def test_a_default_does_not_stay_allocated(first_call, define, argument):
    define(f"f(Tensor x, {argument}) -> Tensor", lambda x, k=0: x)
    calls = 200
    assert kept_by(lambda: [first_call() for _ in range(calls)] and None, 16 * calls - 1) < 16 * calls


@pytest.mark.parametrize(
    "schema",
    [
        "g(Tensor x, float a, int[] n, *, str mode='sum') -> Tensor",
        "g(Tensor x, float scale=1, float a=2, bool b=True, *, int[] n=[]) -> Tensor",
        "g(*, int[] n, Tensor x, SymInt k=4, float a) -> Tensor",
        "g(Tensor x, float a, SymInt[] n) -> Tensor",
        "g(Tensor x, float a, int[2] n) -> (Tensor y)",
    ],
)
def test_an_argument_goes_by_its_name(first_call, define, schema):
    names = [argument.name for argument in torch._C.parse_schema(schema).arguments]

    def kernel(*args, **kwargs):
        given = dict(zip(names, args, strict=False)) | kwargs
        assert (given["a"], given["n"]) == (3, [1, 2])
        return given["x"] + 1

    define(schema, kernel)
    assert first_call("g") == "3.000000"


MISFITS = [
    ("g(Tensor x, float a, int[] n, int k) -> Tensor", "the call has no 'k', which has no default"),
    ("g(Tensor x, int a, int[] n) -> Tensor", "'a' is int, and the call has float"),
    ("g(Tensor x, float? a, int[] n) -> Tensor", "'a' is float?, and the call has float"),
    ("g(Tensor(a!) x, float a, int[] n) -> Tensor", "'x' is Tensor(!), and the call has Tensor"),
    ("g(Tensor x, Scalar a, int[] n) -> Tensor", "'a' is Scalar, and the call has float"),
    ("g(Tensor[] x, float a, int[] n) -> Tensor", "'x' is Tensor[], and the call has Tensor"),
    ("g(Tensor x, int[] n) -> Tensor", "it has no argument 'a'"),
    ("g(Tensor x, float alpha, int[] n) -> Tensor", "the call has no 'alpha', which has no default"),
    ("g(Tensor x, float a, int[] n) -> ()", "the results are others"),
    ("g(Tensor x, float a, int[] n) -> (Tensor, Tensor)", "the results are others"),
    ("g(Tensor x, float a, int[] n) -> Tensor[]", "the results are others"),
    ("g(Tensor x, float a, int[] n, Scalar k=1) -> Tensor", "whose default 1 cannot be filled in for a Scalar"),
    ("g(Tensor x, float a, int[] n, ScalarType k=float) -> Tensor", "whose default 6 cannot be filled in"),
    ("g(Tensor x, float a, ScalarType[] n) -> Tensor", "'n' is ScalarType[], and the call has int[]"),
]
WRITTEN = "waves_callee::g(Tensor x, float a, int[] n) -> Tensor"


@pytest.mark.parametrize(("schema", "words"), MISFITS)
def test_a_call_that_does_not_fit_is_refused(first_call, define, schema, words):
    called = []
    define(schema, lambda *args, **kwargs: called.append(args))
    message = first_call("g")
    assert words in message
    assert f"written for '{WRITTEN}'" in message
    assert str(torch._C._get_schema("waves_callee::g", "")) in message
    assert "OPWHEEL-E032" in message
    assert called == []


@pytest.mark.parametrize(("schema", "words"), MISFITS)
def test_the_registry_finds_it_first(define, schema, words):
    """The same judgement, in Python, when a library is loaded."""
    define(schema, lambda *args, **kwargs: None)
    assert f"calls '{WRITTEN}'" in callees.misfit(WRITTEN)
    assert str(torch._C._get_schema("waves_callee::g", "")) in callees.misfit(WRITTEN)


def test_a_default_that_pytorch_does_not_print_as_it_is(first_call, define):
    define("f(Tensor x, str k='grüße') -> Tensor", lambda x, k="": x)
    assert "cannot be filled in for a str" in first_call()


def test_what_nobody_defined(first_call, define):
    assert "waves_callee::f is called, and there is no such operator in this process" in first_call()
    assert callees.misfit("waves_callee::f(Tensor x) -> Tensor") == ""
    define("f(Tensor x) -> Tensor", lambda x: x * 3)
    assert first_call() == "6.000000"


def test_what_is_defined_anew_after_a_call(first_call, define):
    """It cannot be seen whether all of it is the same, but no argument is read that nobody has put there."""
    define("f(Tensor x) -> Tensor", lambda x: x * 3)
    assert first_call() == "6.000000"
    with torch.library._scoped_library("waves_callee", "FRAGMENT") as library:
        define.forget()
        assert "defined anew with other arguments, or removed" in first_call()
        library.define("f(Tensor x, float k=4) -> Tensor")
        library.impl("f", lambda x, k=4.0: x * k, "CPU")
        assert "defined anew with other arguments, or removed" in first_call()


def test_without_a_registry(callers, tmp_path, define):
    """A library that somebody has opened by hand is told nothing: it does not guess."""
    define("f(Tensor x) -> Tensor", lambda x: x * 3)
    copy = tmp_path / "libcopy.so"
    shutil.copy(callers, copy)
    function = ctypes.CDLL(str(copy)).call_f
    function.restype = ctypes.c_char_p
    assert b"waves_callee::f is called, and its schema cannot be read: this library was opened by hand" in function()


def test_errors_have_their_own_words(ops, define):
    def kernel(x):
        raise ValueError("the ninth wave")

    define("fails(Tensor x) -> Tensor", kernel)
    with pytest.raises(RuntimeError, match=r"fails: .*the ninth wave"):
        ops.fails(X)
    with pytest.raises(RuntimeError, match=r"mm: mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)$"):
        ops.mm(torch.ones(2, 3), torch.ones(2, 3))


def test_an_error_of_a_kernel_in_c_plus_plus(ops):
    with pytest.raises(
        RuntimeError, match=r"^triples: argument 'x' has shape \(2,\), expected \(-1, 3\); pass a tensor"
    ):
        ops.triples(X)


def test_nothing_is_recorded(ops):
    """The kernel's result has the node that PyTorch gives an operator without a derivative, and nothing behind it."""
    x = torch.randn(3, 3, requires_grad=True)
    assert "MmBackward" in torch.mm(x, x).grad_fn.name()
    assert "WarnNotImplemented" in ops.mm(x, x).grad_fn.name()


def test_autocast_changes_no_dtype(ops):
    """Where it did, the kernel would read the result as what it is not."""
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype is torch.bfloat16
        assert ops.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype is torch.float32


def test_an_operator_with_a_default_that_cannot_be_filled_in(ops):
    with pytest.raises(RuntimeError, match="'alpha', whose default 1 cannot be filled in for a Scalar"):
        ops.plus(X, X)


def test_first_calls_of_threads_at_once(first_call, define):
    define("f(Tensor x, float k=4) -> Tensor", lambda x, k=4.0: x * k)
    barrier, results = threading.Barrier(8), []

    def work():
        barrier.wait()
        results.extend(first_call() for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["8.000000"] * 160


@pytest.mark.slow
def test_old_models_when_the_callee_has_got_another_argument(library, tmp_path):
    """Eager, exported, TorchScript and AOTInductor: neither the caller is built again nor the models saved again."""
    for path in (cpp_library.open_types(), Path(library._name)):
        shutil.copy(path, tmp_path)

    def run(what):
        command = [sys.executable, "-m", "tests.non_elementwise.old_model", str(tmp_path), what]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    run("save")
    assert run("run").split() == ["6.0"] * 4


def test_no_exception_passes_through_c(capfd):
    """Such as one about a name that is no text; a kernel cannot have one."""
    _, call, _ = callees.functions_in_python()
    assert call(b"\xff", b"", None, 0, 0) == 1
    assert "UnicodeDecodeError" in capfd.readouterr().err
