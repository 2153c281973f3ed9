"""Backward passes of all kinds over the fused loss, whose gradients become the weights' in its last pass."""

import pytest
import torch
import transformer_ops
from hypothesis import given, settings
from hypothesis import strategies as st
from opwheel.dispatch import native_autograd
from opwheel.memory.usage import peak
from torch.nn import functional

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PASSES = st.lists(
    st.tuples(
        st.sampled_from(["free", "keep", "differentiable", "step"]),
        st.sampled_from([1.0, -1.0, 0.25, 1024.0]),
        st.sampled_from([(0, 1, 2), (1,), (0, 2), (2, 1)]),
    ),
    min_size=1,
    max_size=5,
)


def leaves(dtype):
    """Input, weight and bias: the same numbers in every dtype."""
    torch.manual_seed(0)
    drawn = [torch.randn(*shape).bfloat16() for shape in ((6, 4), (7, 4), (7,))]
    return [one.to(dtype).requires_grad_() for one in drawn]


def target():
    return torch.tensor([3, 1, -100, 0, 6, 6])


def plain(x, weight, target, bias):
    return functional.cross_entropy(functional.linear(x, weight, bias), target)


def gradients_of(loss, dtype, passes):
    """What each pass gives: gradients, or that it is refused. A step adds its gradients to those that are there."""
    given, found = leaves(dtype), []
    x, weight, bias = given
    y = loss(x, weight, target(), bias)
    for kind, factor, which in passes:
        wanted = [given[i] for i in which]
        try:
            if kind == "step":
                loss(x, weight, target(), bias).mul(factor).backward(inputs=wanted)
                found.append([None if one.grad is None else one.grad.double().clone() for one in given])
                continue
            gradients = torch.autograd.grad(
                y, wanted, torch.tensor(factor, dtype=y.dtype), retain_graph=kind != "free", create_graph="diff" in kind
            )
            found.append([one.detach().double().clone() for one in gradients])
        except RuntimeError as error:
            assert "a second time" in str(error)  # noqa: PT017  # any other error of any pass is one
            found.append("refused")
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_passes_in_any_order(dtype):
    """They give what PyTorch's give, and are refused where PyTorch's are."""
    eps = torch.finfo(dtype).eps

    @settings(max_examples=40)
    @given(PASSES)
    def check(passes):
        expected = gradients_of(plain, torch.float64, passes)
        found = gradients_of(transformer_ops.fused_linear_cross_entropy, dtype, passes)
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours == "refused") == (theirs == "refused")
            for one, other in zip(ours, theirs, strict=True):
                if isinstance(other, torch.Tensor):
                    assert (one - other).abs().max() <= 30 * eps * other.abs().max()

    check()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_a_program_keeps_of_a_call(dtype):
    """The gradients that the operator for training returns are not those that a program sees change."""
    x, weight, bias = leaves(dtype)
    operator = torch.ops.transformer_ops.fused_linear_cross_entropy_training
    loss, *kept, _ = operator(x, weight, target(), bias)
    before = [one.clone() for one in kept]
    (loss * -3).backward()
    for one, other in zip(kept, before, strict=True):
        assert torch.equal(one, other)
    for one, other in zip(
        (x, weight, bias), gradients_of(plain, torch.float64, [("free", -3.0, (0, 1, 2))])[0], strict=True
    ):
        assert (one.grad - other).abs().max() <= 30 * torch.finfo(dtype).eps * other.abs().max()


def test_tied_weights():
    """The weight has two gradients, which the engine adds up: in place, where it may."""
    tokens = torch.tensor([0, 3, 5, 6, 1, 3])

    def gradient(loss, dtype):
        _, weight, bias = leaves(dtype)
        for _ in range(2):  # there is a gradient in the second
            (loss(functional.embedding(tokens, weight), weight, target(), bias) * -2).backward()
        return weight.grad.double()

    expected = gradient(plain, torch.float64)
    found = gradient(transformer_ops.fused_linear_cross_entropy, torch.float32)
    assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()


@pytest.mark.skipif(bool(native_autograd.why_not()), reason=native_autograd.why_not() or "there")
def test_the_weights_gradient_is_in_memory_once():
    """Beyond the gradient of an earlier pass; a graph that is kept needs another one."""
    classes, width = 32_000, 512
    x, weight = torch.randn(64, width), torch.randn(classes, width, requires_grad=True)
    labels = torch.randint(classes, (64,))

    def passed(**options):
        transformer_ops.fused_linear_cross_entropy(x, weight, labels).backward(**options)

    passed()
    once, twice = peak(passed), peak(lambda: passed(retain_graph=True))
    if once is None:
        pytest.skip("this system does not tell how much memory a process takes")
    size = weight.nbytes
    assert once < 1.4 * size  # logits are 0.125
    assert twice > 1.9 * size
