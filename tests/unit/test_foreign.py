"""Kernels for operators that others define: declared for muladd, of operators that are defined here."""

import warnings

import muladd
import pytest
import torch
from opwheel import ForeignKernel
from opwheel.foreign import ForeignKernels, override
from opwheel.foreign.condition import Condition
from opwheel.registry.errors import ForeignOperatorError
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

COMPOSITE, PLAIN = "foreign_test::twice", "foreign_test::halved"
OUT, IN_PLACE = "foreign_test::halved.out", "foreign_test::halve_"
calls: list[str] = []


def note(name, result):
    calls.append(name)
    return result


@pytest.fixture(scope="module", autouse=True)
def operators():
    """Of somebody else: one that is composed of PyTorch's, and one with a kernel and variants that write."""
    library = torch.library.Library("foreign_test", "DEF")
    library.define("twice(Tensor x, int[] sizes=[], float factor=2.) -> Tensor")
    library.impl("twice", lambda x, sizes=(), factor=2.0: x * factor, "CompositeImplicitAutograd")
    library.define("halved(Tensor x) -> Tensor")
    library.impl("halved", lambda x: x / 2, "CPU")
    library.define("halved.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    library.impl("halved.out", lambda x, out: out.copy_(x / 2), "CPU")
    library.define("halve_(Tensor(a!) x) -> Tensor(a!)")
    library.impl("halve_", lambda x: x.div_(2), "CPU")
    yield
    library._destroy()


def kernels(*declarations):
    return ForeignKernels(muladd.library, declarations)


def twice(**changes):
    function = lambda x, sizes=(), factor=2.0: note("twice", muladd.scale(x, factor))  # noqa: E731
    given = {"when": ("x.dtype == float32", "x.numel() >= 4"), "uses": ("scale",), **changes}
    return ForeignKernel(COMPOSITE, function, **given)


HALVED = ForeignKernel(PLAIN, lambda x: note("halved", x * 0.5), when=("x.dim() == 1",), uses=("scale",))


def state(operator):
    return torch._C._dispatch_dump(operator), torch._C._dispatch_dump_table(operator)


@pytest.fixture(params=["native", "python"])
def way(request, monkeypatch):
    """In C++ and in Python."""
    if request.param == "python":
        monkeypatch.setattr(override, "library", lambda: "a test")
    elif isinstance(override.library(), str):
        pytest.skip(override.library())
    calls.clear()
    return request.param


def test_composite(way):
    """Chosen calls are ours, others have their own derivatives, and off leaves nothing."""
    before, tag = state(COMPOSITE), torch.compiler.config.cache_key_tag
    x = torch.ones(4, requires_grad=True)
    for _ in range(2):
        with kernels(twice()).on() as switched:
            assert switched.operators == (COMPOSITE,)
            for value, expected in ((x, ["twice"]), (x.detach().double().requires_grad_(), []), (x[:2], [])):
                calls.clear()
                y = torch.ops.foreign_test.twice(value, factor=3.0)
                assert calls == expected
                assert torch.autograd.grad(y.sum(), value)[0].tolist() == [3.0] * len(value)
            with torch.inference_mode():
                calls.clear()
                torch.ops.foreign_test.twice(torch.ones(4))
                assert calls == ["twice"]
            assert torch.compiler.config.cache_key_tag != tag
        assert state(COMPOSITE) == before
        assert torch.compiler.config.cache_key_tag == tag


def test_variants(way):
    declared = (
        HALVED,
        ForeignKernel(OUT, lambda x, *, out: note("out", out.copy_(x * 0.5)), when=("x.dim() == 1",), uses=()),
        ForeignKernel(IN_PLACE, lambda x: note("in place", x.mul_(0.5)), when=("x.dim() == 1",), uses=()),
    )
    x, out = torch.ones(3), torch.empty(3)
    with kernels(*declared).on():
        assert torch.ops.foreign_test.halved(x).tolist() == [0.5] * 3
        assert torch.ops.foreign_test.halved.out(x, out=out) is out
        assert torch.ops.foreign_test.halve_(x) is x
        assert (x.tolist(), out.tolist(), calls) == ([0.5] * 3, [0.5] * 3, ["halved", "out", "in place"])
        torch.ops.foreign_test.halved(torch.ones(2, 2))
    assert calls == ["halved", "out", "in place"]


def test_special_calls_are_not_ours(way):
    """Transforms, tangents, subclasses with rules of their own, and modes of the user's."""

    class Subclass(Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return torch.zeros(4)

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **kwargs or {})

    op, x = torch.ops.foreign_test.twice, torch.ones(4)
    with kernels(twice()).on():
        assert torch.func.grad(lambda x: op(x).sum())(x).tolist() == [2.0] * 4
        assert torch.func.jvp(op, (x,), (x,))[1].tolist() == [2.0] * 4
        with Mode():
            op(x)
        op(torch.ones(4, dtype=torch.complex64).conj())
        op(torch.Tensor._make_subclass(Subclass, x))
        assert calls == []
        assert torch.func.vmap(op)(torch.ones(2, 4)).tolist() == [[2.0] * 4] * 2
        calls.clear()
        with torch.autocast("cpu", torch.bfloat16):
            assert op(x).dtype == torch.float32
        assert calls == ["twice"]


def test_twice_is_once_and_blocks_end_what_they_began():
    ours = kernels(twice(), HALVED)
    with ours.on("twice") as outer:
        with ours.on() as inner:
            assert (outer.operators, inner.operators) == ((COMPOSITE,), (PLAIN,))
            assert ours.on().operators == ()
        assert [status.state for status in ours.status()] == ["on", "off"]
    assert [status.state for status in ours.status()] == ["off", "off"]


def test_refusals():
    """By name, and nothing is changed."""
    before = state(PLAIN)
    unknown = ForeignKernel("aten::no_such_operator", HALVED.function, when=(), uses=())
    unfit = ForeignKernel(COMPOSITE, HALVED.function, when=("x.colour == 3",), uses=())
    without = ForeignKernel(COMPOSITE, HALVED.function, when=(), uses=("no_such_operator",))
    for declaration, message in (
        (unknown, "aten::no_such_operator, which does not exist in this PyTorch"),
        (unfit, "'x.colour', which is not supported"),
        (without, "no kernel for no_such_operator at CPU"),
    ):
        with pytest.raises(ForeignOperatorError, match=message) as caught:
            kernels(HALVED, declaration).on()
        assert caught.value.code == "OPWHEEL-E100"
        assert state(PLAIN) == before
    with pytest.raises(ValueError, match="'thrice' is not one of 'halved'"):
        kernels(HALVED).on("thrice")


@pytest.mark.parametrize(
    ("operator", "device_type", "message"),
    [("rms_norm", "cpu", "'rms_norm', which has no namespace"), ("aten::rms_norm", "meta", "is for meta tensors")],
)
def test_what_cannot_be_declared(operator, device_type, message):
    with pytest.raises(ValueError, match=message):
        ForeignKernel(operator, HALVED.function, when=(), uses=(), device_type=device_type)


def test_off_in_the_reverse_order(way, monkeypatch):
    """The kernel that was there can be had at Autograd only while the backend has none: the last is undone first."""
    removed = []
    remove = override.Override.remove
    monkeypatch.setattr(override.Override, "remove", lambda one: (removed.append((one.operator, one.key)), remove(one)))
    before = state(COMPOSITE), state(PLAIN)
    ours = kernels(twice(), HALVED)
    ours.on("twice")
    ours.on("halved")
    ours.off()
    assert removed == [(PLAIN, "CPU"), (COMPOSITE, "CPU"), (COMPOSITE, "AutogradCPU")]
    assert (state(COMPOSITE), state(PLAIN)) == before


def test_one_owner():
    before = state(PLAIN)
    with kernels(HALVED).on(), pytest.raises(ForeignOperatorError, match="has an owner: muladd"):
        kernels(HALVED).on()
    other = torch.library.Library("foreign_test", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other.impl("halved", lambda x: x / 2, "CPU", allow_override=True)
    with pytest.raises(ForeignOperatorError, match=r"a kernel registered at .*\.py"):
        kernels(HALVED).on()
    other._destroy()
    ours = kernels(HALVED)
    ours.on()
    other = torch.library.Library("foreign_test", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other.impl("halved", lambda x: x / 2, "CPU", allow_override=True)
    with pytest.raises(ForeignOperatorError, match="another was registered over it at"):
        ours.off()
    other._destroy()
    ours.off()
    assert state(PLAIN) == before


def test_native_overrides_are_owners(monkeypatch):
    monkeypatch.setattr("opwheel._torch.private.native_overrides", lambda operator, key: ["triton"])
    with pytest.raises(ForeignOperatorError, match=r"torch._native \(triton\)"):
        kernels(HALVED).on()


def test_not_in_the_middle_of_a_mode():
    class Mode(TorchDispatchMode):
        pass

    class FunctionMode(TorchFunctionMode):
        pass

    for mode, name in ((Mode(), "Mode"), (FunctionMode(), "a mode of torch function")):
        with mode, pytest.raises(ForeignOperatorError, match=f"while active: {name}"):
            kernels(HALVED).on()


def test_an_operator_that_comes_later():
    later = ForeignKernel("foreign_later::f", lambda x: note("later", x + 1), when=(), uses=())
    ours = kernels(later)
    ours.on()
    assert [status.state for status in ours.status()] == ["waiting"]
    library = torch.library.Library("foreign_later", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x, "CPU")
    ours.on()
    assert torch.ops.foreign_later.f(torch.ones(1)).item() == 2
    assert [status.state for status in ours.status()] == ["on"]
    ours.off()
    assert torch.ops.foreign_later.f(torch.ones(1)).item() == 1
    library._destroy()


def test_why_and_digest():
    ours = kernels(twice(fast=("x.numel() >= 8",)))
    digest = muladd.library.digest()
    with ours.on():
        assert muladd.library.digest() != digest
    assert muladd.library.digest() == digest
    assert ours.why(COMPOSITE, torch.ones(8)) == (True, "")
    assert ours.why(COMPOSITE, torch.ones(4)).reason == "not: x.numel() >= 8"
    assert ours.why(COMPOSITE, torch.ones(8).double()).reason == "not: x.dtype == float32"
    assert "is on meta" in ours.why(COMPOSITE, torch.ones(8, device="meta")).reason
    assert "not dense" in ours.why(COMPOSITE, torch.ones(8).to_sparse()).reason
    with pytest.raises(ValueError, match="no kernel for 'aten::add'"):
        ours.why("aten::add", torch.ones(8))


def nested(times):
    return "factor + (" * times + "factor" + ")" * times + " > 20"


CONDITIONS = (
    "x.dtype in (float64, float32) and x.dtype not in (int64,)",
    "x.shape[-1] == 4",
    "x.shape[3] == 4",
    "x.stride(0) == 1 or x.stride(-1) != 1",
    "x.is_contiguous() and not x.requires_grad",
    "len(sizes) == 2 and sizes[0] == x.dim() and sizes[-1] + 1 > 2",
    "1.5 <= factor < 2 * 2**2",
    "x is not None and is_grad_enabled()",
    "factor * 2 >= -1",
    nested(14),
)


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_in_both_languages(text):
    if isinstance(override.library(), str):
        pytest.skip(override.library())
    condition = Condition(text, ["x", "sizes", "factor"])
    given = [torch.ones(4), torch.ones(2, 4).t(), torch.ones(3).double(), torch.ones(4, requires_grad=True)]
    with kernels(twice(when=(text,))).on():
        for x in given:
            for sizes, factor in (([], 2.0), ([x.dim(), 2], 1.0)):
                calls.clear()
                torch.ops.foreign_test.twice(x, sizes, factor)
                assert bool(calls) == condition.holds({"x": x, "sizes": sizes, "factor": factor}), (x, sizes, factor)


@pytest.mark.parametrize(
    "text", ["x +", "y.dim()", "x.foo", "x @ 2", "x.dim() is 3", "x.stride(x)", "len(x, x)", "f(x)", nested(15)]
)
def test_what_conditions_cannot_say(text):
    with pytest.raises(ValueError, match="the condition"):
        Condition(text, ["x", "factor"])
