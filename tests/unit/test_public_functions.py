"""muladd.muladd and its siblings: which operator they pick and what they refuse."""

from contextlib import nullcontext
from fractions import Fraction

import muladd
import numpy as np
import pytest
import torch
from opwheel._torch.native import library_file
from opwheel_tools.testing.memory import FOREIGN, FREED
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture
def a():
    return torch.tensor([1.0, 2.0, 3.0])


NUMBERS = [2, 2.0, True, np.float16(2), np.float32(2.0), np.float64(2.0), np.longdouble(2), np.int8(2), np.int64(2)]


@pytest.mark.parametrize("c", [*NUMBERS, np.uint8(2), np.bool_(True), np.bool_(False)], ids=repr)
def test_a_number_is_muladd(a, c):
    assert torch.equal(muladd.muladd(a, a, c), a * a + float(c))
    assert torch.equal(muladd.scale(a, c), a * float(c))


def test_a_tensor_is_fma(a):
    c = torch.tensor([[1.0], [10.0]], requires_grad=True)
    result = muladd.muladd(a, a, c)
    assert torch.equal(result, a * a + c)
    result.sum().backward()
    assert torch.equal(c.grad, torch.full((2, 1), 3.0))


def test_a_0d_tensor_keeps_its_gradient(a):
    """An overload that differs only in `float c` would turn it into a number and lose the gradient."""
    c = torch.tensor(2.0, requires_grad=True)
    muladd.muladd(a, a, c).sum().backward()
    assert c.grad.item() == 3.0


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_scale_with_a_tensor_keeps_its_gradient(a, shape):
    """A learnable scale; as a number it would never learn."""
    factor = torch.full(shape, 2.0, requires_grad=True)
    result = muladd.scale(a, factor)
    assert torch.equal(result, a * 2)
    result.sum().backward()
    assert factor.grad.sum().item() == 6.0


@pytest.mark.parametrize("c", ["2", None, [2.0], 2j], ids=repr)
def test_anything_else_is_refused(a, c):
    with pytest.raises(TypeError, match=type(c).__name__):
        muladd.scale(a, c)
    with pytest.raises(TypeError, match=type(c).__name__):
        muladd.muladd(a, a, c)
    with pytest.raises(TypeError, match=type(c).__name__):
        muladd.muladd_(a, a, c)


@pytest.mark.parametrize("kind", FREED)
def test_a_tensor_whose_memory_was_given_back_is_refused(a, kind):
    """Where the storage has an offset its address is not null, but a few bytes behind that."""
    gone = FREED[kind](a)
    calls = (
        lambda: muladd.mul(a, gone),
        lambda: muladd.mul(gone, a),
        lambda: muladd.mul(gone, a, out=torch.empty(0)),
        lambda: muladd.mul(a, a, out=gone),
        lambda: muladd.muladd_(gone, a, 1.0),
        lambda: muladd.muladd_(a, gone, 1.0),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="has no memory"):
            call()
    assert muladd.mul(gone, torch.empty(2, 0, 1)).shape == (2, 0, 3)  # nothing of it is read


@pytest.mark.parametrize("kind", FOREIGN)
def test_an_out_that_cannot_grow_is_refused_and_stays_as_it_was(a, kind):
    for call in (muladd.mul, torch.ops.muladd.mul.out):
        out = FOREIGN[kind](torch.empty(0))
        before = out.shape, out.stride(), out.storage_offset()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
                call(a, a, out=out)
            assert (out.shape, out.stride(), out.storage_offset()) == before


@pytest.mark.parametrize("kind", FOREIGN)
def test_an_out_grows_within_memory_of_somebody_else(a, kind):
    memory = FOREIGN[kind](torch.zeros(5))
    out = memory[1:1]
    assert muladd.mul(a, a, out=out) is out
    assert torch.equal(memory, torch.tensor([0.0, 1.0, 4.0, 9.0, 0.0]))


def test_an_out_that_grows_into_an_input_is_refused_and_stays_as_it_was(a):
    memory = torch.cat([a, a])
    out = memory[1:1]
    with pytest.raises(RuntimeError, match="share memory"):
        muladd.mul(memory[:3], a, out=out)
    assert out.shape == (0,)
    assert torch.equal(memory, torch.cat([a, a]))


@pytest.mark.parametrize("device", ["cpu", "meta", "fake"])
@pytest.mark.parametrize("rows", [2**32, 2**31])  # too many elements, and too many bytes alone
def test_more_elements_than_pytorch_counts_are_refused(rows, device):
    words = f"Storage size calculation overflowed with sizes=.{rows}, {rows}"
    with FakeTensorMode() if device == "fake" else nullcontext():
        one = torch.ones(1, device="meta" if device == "meta" else "cpu")
        x, y = one.expand(rows, 1), one.expand(1, rows)
        with pytest.raises(RuntimeError, match=words):
            muladd.mul(x, y)
        out = torch.empty_like(one[:0])
        with pytest.raises(RuntimeError, match=words):
            muladd.mul(x, y, out=out)
        assert (out.shape, out.stride()) == ((0,), (1,))


@pytest.mark.parametrize("shape", [(2**32, 2**32, 0), (0, 2**32, 2**32), (2**40, 0, 2**40), (0, 2**31, 2**31)], ids=str)
def test_empty_results_of_huge_shapes_are_refused_where_pytorch_refuses(shape):
    """Of an empty tensor PyTorch counts strides, and elements until it comes to the empty dimension."""
    one, (planes, rows, columns) = torch.ones(1), shape
    args = one.expand(planes, 1, 1), one.expand(rows, 1), one.expand(columns)

    def outcome(function):
        try:
            result = function(*args)
        except RuntimeError:
            return "refused"
        return result.shape, result.stride()

    assert outcome(muladd.fma) == outcome(torch.addcmul)


def test_in_place_wants_a_number(a):
    with pytest.raises(TypeError, match="Tensor"):
        muladd.muladd_(a, a, torch.ones(3))


@pytest.mark.parametrize("b_needs_gradient", [False, True])
def test_in_place_copies_only_what_a_gradient_needs(a, b_needs_gradient):
    class Copies(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.count += function is torch.ops.aten.clone.default
            return function(*args, **(kwargs or {}))

    x, b = a.clone().requires_grad_(), a.clone().requires_grad_(b_needs_gradient)
    target = x * 1.0
    with Copies() as copies:
        muladd.muladd_(target, b, 1.0)
    assert copies.count == b_needs_gradient
    target.sum().backward()
    assert torch.equal(x.grad, b)
    assert b.grad is None or torch.equal(b.grad, a)


def test_out(a):
    for call, expected in (
        (lambda out: muladd.muladd(a, a, 2.0, out=out), a * a + 2),
        (lambda out: muladd.muladd(a, a, a, out=out), a * a + a),
        (lambda out: muladd.fma(a, a, a, out=out), a * a + a),
        (lambda out: muladd.mul(a, a, out=out), a * a),
        (lambda out: muladd.add(a, a, out=out), a + a),
        (lambda out: muladd.scale(a, 3.0, out=out), a * 3),
    ):
        out = torch.empty(3)
        assert call(out) is out
        assert torch.equal(out, expected)


def test_torch_function_of_other_libraries(a):
    class Lazy:
        """Not a Tensor subclass, as lazy and remote tensors are."""

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "handled"

    assert muladd.muladd(a, a, Lazy()) == "handled"
    assert muladd.mul(Lazy(), a) == "handled"


def test_version_is_the_distribution_s():
    from importlib.metadata import version

    assert muladd.__version__ == version("muladd-core")


def test_the_cpu_backend_was_built_for_this_abi():
    assert muladd.backends()["cpu"].state == "loaded"
    assert muladd.library.abi == 1


@pytest.mark.parametrize("c", [10**400, -(10**400), Fraction(10) ** 400], ids=["large", "negative", "fraction"])
def test_a_number_beyond_every_float_is_refused(a, c):
    for call in (lambda: muladd.muladd(a, a, c), lambda: muladd.muladd_(a, a, c), lambda: muladd.scale(a, c)):
        with pytest.raises(OverflowError, match=r"(c|factor) is of type (int|Fraction) and beyond every float"):
            call()


def test_none_is_refused_by_name(a):
    for name, call in (
        ("a", lambda: muladd.muladd(None, a, 1.0)),
        ("b", lambda: muladd.muladd(a, None, 1.0)),
        ("b", lambda: muladd.muladd(a, None, 1.0, out=a)),
        ("c", lambda: muladd.fma(a, a, None)),
        ("a", lambda: muladd.muladd_(None, a, 1.0)),
        ("b", lambda: muladd.muladd_(a, None, 1.0)),
        ("x", lambda: muladd.scale(None, 1.0)),
    ):
        with pytest.raises(TypeError, match=f"argument '{name}' is None, expected a torch.Tensor"):
            call()


@pytest.mark.skipif(isinstance(library_file("calls"), str), reason=str(library_file("calls")))
@pytest.mark.parametrize("value", [1, 2.0, True, "x", [], (torch.ones(3),), {}, 2j, np.float32(1), torch], ids=repr)
def test_what_is_no_tensor_is_refused_in_a_sentence(a, value):
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    calls = {
        ("fma", "c"): lambda: muladd.fma(a, a, value),
        ("fma", "a"): lambda: muladd.fma(value, a, a),
        ("muladd", "a"): lambda: muladd.muladd(value, a, 1.0),
        ("muladd", "b"): lambda: muladd.muladd(a, value, 1.0, out=a),
        ("muladd_", "a"): lambda: muladd.muladd_(value, a, 1.0),
        ("mul", "b"): lambda: muladd.mul(a, b=value),
        ("add", "out"): lambda: muladd.add(a, a, out=value),
        ("scale", "x"): lambda: muladd.scale(value, 2.0),
    }
    for (function, argument), call in calls.items():
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == f"{function}: argument '{argument}' is {article} {kind}, expected a torch.Tensor"
        assert caught.value.__context__ is None


def test_a_compiled_program_is_given_its_number(a):
    """Also one that is symbolic there."""
    call = torch.compile(lambda x, c: muladd.muladd(x, x, c), backend="eager", fullgraph=True, dynamic=True)
    for c in (2, 3, 2.5):
        assert torch.equal(call(a, c), a * a + c)


def test_what_a_notebook_shows():
    backends = muladd.backends()
    assert isinstance(backends, dict)
    heading, row, *_ = repr(backends).splitlines()
    assert heading.split() == ["backend", "state", "key", "distribution", "operators", "reason"]
    assert row.split()[:4] == ["cpu", "loaded", "CPU", "muladd-cpu"]
    assert "<tr><td>cpu</td><td>loaded</td><td>CPU</td><td>muladd-cpu" in backends._repr_html_()


def test_dir_is_what_there_is_to_use():
    assert dir(muladd) == sorted(muladd.__all__)
