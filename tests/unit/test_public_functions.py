"""muladd.muladd and its siblings: which operator they pick and what they refuse."""

import muladd
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture
def a():
    return torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("c", [2, 2.0, True, np.float32(2.0), np.float64(2.0), np.int64(2)], ids=repr)
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


def test_a_tensor_whose_memory_was_given_back_is_refused(a):
    gone = a.clone()
    gone.untyped_storage().resize_(0)
    for call in (lambda: muladd.mul(a, gone), lambda: muladd.mul(gone, a), lambda: muladd.mul(a, a, out=gone)):
        with pytest.raises(RuntimeError, match="has no memory"):
            call()


def test_an_out_that_cannot_grow_is_refused_once(a):
    """The failed resize leaves its new sizes: a second attempt would write where there is no memory."""
    for call in (muladd.mul, torch.ops.muladd.mul.out):
        with pytest.raises(RuntimeError, match=r"'out' could not be resized to 3 elements of torch\.float32 on cpu"):
            call(a, a, out=torch.from_numpy(np.empty(0, dtype=np.float32)))


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
