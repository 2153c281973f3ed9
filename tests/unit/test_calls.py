"""Calls of the public functions: nothing of Python runs in ordinary ones, and whatever has to see a call sees it."""

import sys
from contextlib import nullcontext
from pathlib import Path

import muladd
import pytest
import torch
from opwheel import Operator
from opwheel.dispatch import calls, native_autograd, register_python
from opwheel_tools.testing.memory import FUNCTIONAL
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from tests.recording import Recorded

CALLS = {
    "muladd": lambda a, b: muladd.muladd(a, b, 2.0),
    "fma": lambda a, b: muladd.fma(a, b, a),
    "mul": lambda a, b: muladd.mul(a, b),
    "add": lambda a, b: muladd.add(a, b),
    "scale": lambda a, b: muladd.scale(a, 3.0),
}
REFERENCES = {
    "muladd": lambda a, b: a * b + 2.0,
    "fma": lambda a, b: a * b + a,
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "scale": lambda a, b: a * 3.0,
}


@pytest.fixture(params=CALLS)
def name(request):
    return request.param


@pytest.fixture
def call(name):
    return CALLS[name]


@pytest.fixture
def pair():
    return torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])


def python_functions(call, *args):
    """Functions of muladd, and modules of opwheel, that run during a call."""
    ran = set()
    call(*args)  # what happens once has happened
    sys.setprofile(lambda frame, event, _: ran.add(frame.f_code) if event == "call" else None)
    try:
        call(*args)
    finally:
        sys.setprofile(None)
    functions = {code.co_name for code in ran if code.co_filename == "<functions of muladd>"}
    return functions | {Path(code.co_filename).stem for code in ran if "opwheel" in code.co_filename}


# Where there is no native Autograd library, these are in Python.
KERNELS = {"autograd", "adinplaceorview", "overload"} if native_autograd.why_not() else set()


def test_ordinary_calls_go_to_the_kernel(name, call, pair):
    assert python_functions(call, *pair) - KERNELS == {name}
    assert torch.equal(call(*pair), REFERENCES[name](*pair))


def test_calls_with_a_gradient_go_to_the_kernel(name, call, pair):
    pair[0].requires_grad_()
    if not native_autograd.why_not():
        assert python_functions(call, *pair) == {name}
    assert call(*pair).requires_grad


OVERWRITING = {
    "muladd.out": lambda a, b, out: muladd.muladd(a, b, 2.0, out=out),
    "fma.out": lambda a, b, out: muladd.fma(a, b, a, out=out),
    "mul.out": lambda a, b, out: muladd.mul(a, b, out=out),
    "add.out": lambda a, b, out: muladd.add(a, b, out=out),
    "scale.out": lambda a, b, out: muladd.scale(a, 3.0, out=out),
    "muladd_": lambda a, b, out: muladd.muladd_(out, b, 2.0),
}


@pytest.fixture(params=OVERWRITING)
def overwriting(request):
    return request.param


def test_out_and_in_place_go_to_the_kernel(overwriting, pair):
    name = overwriting.removesuffix(".out")
    assert python_functions(OVERWRITING[overwriting], *pair, pair[0].clone()) - KERNELS == {name}


def test_out_and_in_place_count_the_modification(overwriting, pair):
    """Without it backward would compute with what has been overwritten."""
    x = torch.ones(3, requires_grad=True)
    saved = torch.ones(3)
    loss = (x * saved).sum()
    OVERWRITING[overwriting](*pair, saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_out_and_in_place_leave_inference_tensors_alone(overwriting, pair):
    with torch.inference_mode():
        target = torch.ones(3)
    with pytest.raises(RuntimeError, match="inference tensor"):
        OVERWRITING[overwriting](*pair, target)
    assert torch.equal(target, torch.ones(3))
    with torch.inference_mode():
        assert OVERWRITING[overwriting](*pair, target) is target


def test_out_and_in_place_are_seen(overwriting, pair):
    with Recorded() as recorded:
        OVERWRITING[overwriting](*pair, pair[0].clone())
    assert any(f"muladd.{overwriting}" in name for name in recorded.names)


@pytest.mark.parametrize("position", [0, 1])
def test_out_and_in_place_with_gradients(overwriting, pair, position):
    pair[position].requires_grad_()
    if overwriting == "muladd_":
        target = torch.ones(3) * pair[0]
        assert OVERWRITING[overwriting](*pair, target).requires_grad
    elif (overwriting, position) != ("scale.out", 1):
        with pytest.raises(RuntimeError, match="do not support automatic differentiation"):
            OVERWRITING[overwriting](*pair, torch.ones(3))


def test_a_negated_view_is_overwritten(overwriting, pair):
    target = torch.complex(torch.zeros(3), -pair[0]).conj().imag
    assert target.is_neg()
    assert torch.equal(target, pair[0])
    expected = OVERWRITING[overwriting](*pair, pair[0].clone())
    OVERWRITING[overwriting](*pair, target)
    assert torch.equal(target, expected)


def test_an_empty_out_is_resized(overwriting, pair):
    if overwriting != "muladd_":
        target = torch.empty(0)
        assert OVERWRITING[overwriting](*pair, target) is target
        assert target.shape == (3,)


def test_without_grad_inputs_may_require_it(call, pair):
    pair[0].requires_grad_()
    with torch.no_grad():
        assert not call(*pair).requires_grad
    assert call(*pair).requires_grad


class RecordedFunctions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Recorded, RecordedFunctions])
def test_modes_see_the_operator(name, call, pair, mode):
    with mode() as recorded:
        call(*pair)
    assert any(f"muladd.{name}" in seen for seen in recorded.names)


def test_a_profile_has_the_operator(name, call, pair):
    with torch.profiler.profile() as profile:
        call(*pair)
    assert f"muladd::{name}" in {event.key for event in profile.key_averages()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_trace_has_the_operator(name, call, pair):
    traced = torch.jit.trace(call, pair)
    assert f"muladd::{name}" in str(traced.graph)
    fx = make_fx(call)(*pair)
    assert f"muladd.{name}" in fx.code


def test_a_compiled_graph_has_the_operator(name, call, pair):
    graphs = []

    def backend(graph, _):
        graphs.append(graph.code)
        return graph

    torch._dynamo.reset()
    assert torch.equal(torch.compile(call, fullgraph=True, backend=backend)(*pair), REFERENCES[name](*pair))
    assert len(graphs) == 1
    assert f"muladd.{name}" in graphs[0]


def test_transforms(name, call, pair):
    rows = [torch.stack([x, 2 * x]) for x in pair]
    assert torch.equal(torch.vmap(call)(*rows), REFERENCES[name](*rows))
    tangents = torch.ones(3), torch.zeros(3)
    assert torch.equal(torch.func.jvp(call, pair, tangents)[1], torch.func.jvp(REFERENCES[name], pair, tangents)[1])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(pair[0], torch.ones(3))
        expected = forward_ad.unpack_dual(REFERENCES[name](dual, pair[1])).tangent
        assert torch.equal(forward_ad.unpack_dual(call(dual, pair[1])).tangent, expected)


def test_autocast(name, call, pair):
    op = getattr(torch.ops.muladd, name)
    half = [x.half() for x in pair]
    args = {"muladd": (*half, 2.0), "fma": (*half, half[0]), "scale": (half[0], 3.0)}.get(name, half)
    with torch.autocast("cpu", torch.bfloat16):
        assert call(*half).dtype == op(*args).dtype


def test_a_negated_view(name, call, pair):
    """The imaginary part of a conjugate is a real tensor with the opposite sign in memory."""
    negated = torch.complex(*pair).conj().imag
    assert negated.is_neg()
    assert torch.equal(call(negated, pair[0]), REFERENCES[name](-pair[1], pair[0]))
    assert torch.equal(call(pair[0], negated), REFERENCES[name](pair[0], -pair[1]))


def test_strings(monkeypatch):
    """They go to the operator without PyTorch's function in Python, and what is none is taken or refused as there."""
    schema = "turned(Tensor x, str mode='as it is') -> Tensor"

    def turned(x, mode="as it is"):
        return -x if mode == "größer" else x.clone()

    declared = Operator("turned", reference=turned, doc="Turn it.")
    function = register_python("waves_strings", {schema: turned}, [declared])["turned"]
    op, x = torch.ops.waves_strings.turned.default, torch.ones(2)
    if calls.function(op) is op:
        pytest.skip("there is no library of calls for this PyTorch")
    assert torch.equal(function(x, "größer"), -x)
    assert torch.equal(function(x), x)
    monkeypatch.setattr(type(op), "__call__", None)
    assert torch.equal(function(x, "größer"), -x)
    monkeypatch.undo()
    for other in (None, 1, b"as it is", "\ud800"):
        outcomes = []
        for one in (function, op):
            try:
                outcomes.append(one(x, other).tolist())
            except Exception as error:  # whatever it is: the same one
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]


class Subclass(torch.Tensor):
    pass


def test_subclasses_stay_what_they_are(call, pair):
    assert type(call(pair[0].as_subclass(Subclass), pair[1])) is Subclass


UNUSUAL = {
    "sparse": lambda x: x.to_sparse(),
    "sparse_csr": lambda x: torch.stack([x, x]).to_sparse_csr(),
    "mkldnn": lambda x: x.to_mkldnn(),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "integer": lambda x: x.long(),
    "complex": lambda x: x.to(torch.complex64),
    "quantized": lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
    "other shape": lambda x: torch.ones(2),
    "meta": lambda x: x.to("meta"),
    "zero": lambda x: torch._efficientzerotensor(x.shape),
    **FUNCTIONAL,
    "no tensor": lambda x: x.tolist(),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_tensors_as_the_operator_takes_them(kind, position):
    x = torch.tensor([1.0, 2.0, 3.0])
    args = [x, x]
    args[position] = UNUSUAL[kind](x)

    def outcome(function):
        try:
            result = function(*args, 2.0)
        except Exception as error:  # whatever it is: the same one
            return type(error), str(error)
        if torch._is_functional_tensor(result):
            result = torch._from_functional_tensor(result)
        return result.dtype, result.device, None if result.is_meta else result.tolist()

    assert outcome(muladd.muladd) == outcome(torch.ops.muladd.muladd.default)


@pytest.mark.parametrize("context", [nullcontext, torch.no_grad, torch.inference_mode])
def test_inference_mode(call, pair, context):
    with context():
        result = call(*pair)
    assert result.is_inference() == (context is torch.inference_mode)
