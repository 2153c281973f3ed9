"""Losses without a reduction, and with weights of classes and tokens, for any incoming gradient, against float64."""

import math
import os

import pytest
import torch
import transformer_ops
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SIXTEEN = (torch.float16, torch.bfloat16)
REDUCTIONS = ("none", "sum", "mean")
EXAMPLES = 10 if IS_INTERPRETED else 60


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def exact(logits, target, weight, tokens, z, smoothing, softcap, reduction):
    """In PyTorch's operators; a mean divides by the weights, as PyTorch's by those of classes."""
    logits = softcap * torch.tanh(logits / softcap) if softcap else logits
    counted = target != -100
    tokens = torch.ones_like(logits[:, 0]) if tokens is None else tokens
    losses = functional.cross_entropy(logits, target, weight, label_smoothing=smoothing, reduction="none")
    losses = torch.where(counted, losses * tokens, 0)
    squares = torch.where(counted, z * logits.logsumexp(-1).square() * tokens, 0)
    if reduction == "none":
        return losses + squares
    if reduction == "sum":
        return losses.sum() + squares.sum()
    tokens = torch.where(counted, tokens, 0)
    share = tokens.sum() if weight is None else (tokens * weight[torch.where(counted, target, 0)]).sum()
    return losses.sum() / share + squares.sum() / tokens.sum()


def check(found, expected, eps, scale=0.0):
    """Relative to the largest element or factor, from which the rounding comes; what is no number is none in both."""
    found, finite = found.double(), expected.isfinite()
    assert torch.equal(found.isfinite(), finite)
    assert torch.equal(found[~finite].isnan(), expected[~finite].isnan())
    largest = expected[finite].abs().max().item() if finite.any() else 0.0
    assert ((found - expected)[finite].abs() <= eps * max(largest, scale) + 1e-30).all()


BORDERS = (1, 2, 5) if IS_INTERPRETED else (1, 2, 5, 255, 256, 257, 512, 513)  # of 256 rows that are made at a time


@st.composite
def calls(draw):
    """Logits' sizes, who counts, all options, and the gradient that arrives."""
    rows, classes = draw(st.sampled_from(BORDERS)), draw(st.sampled_from([1, 2, 7, 33]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    target = torch.randint(classes, (rows,), generator=generator)
    ignored = draw(st.sampled_from(["none", "some", "all"]))
    target[torch.rand(rows, generator=generator) < {"none": 0, "some": 0.4, "all": 2}[ignored]] = -100
    reduction = draw(st.sampled_from(REDUCTIONS))
    grad = torch.randn((rows,) if reduction == "none" else (), generator=generator, dtype=torch.float64)
    return {
        "shape": (rows, classes),
        "width": draw(st.sampled_from([1, 3, 8])),
        "generator": generator,
        "target": target,
        "reduction": reduction,
        "grad": grad * draw(st.sampled_from([0.0, 1.0, 1e-20, 1e20])),
        "dtype": draw(st.sampled_from([torch.float32, torch.float64])),
        "class_weighted": draw(st.booleans()),
        "token_weighted": draw(st.booleans()),
        "z": draw(st.sampled_from([0.0, 0.1])),
        "smoothing": draw(st.sampled_from([0.0, 0.2, 1.0])),
        "softcap": draw(st.sampled_from([0.0, 3.0])),
    }


def weights_of(call):
    rows, classes = call["shape"]
    generator, dtype = call["generator"], call["dtype"]
    weight = torch.rand(classes, generator=generator, dtype=dtype) + 0.1 if call["class_weighted"] else None
    tokens = torch.rand(rows, generator=generator, dtype=dtype) + 0.1 if call["token_weighted"] else None
    return weight, tokens


def double(tensor):
    return None if tensor is None else tensor.detach().double()


@settings(max_examples=EXAMPLES, derandomize=True)
@given(calls())
def test_cross_entropy(call):
    dtype, target, reduction = call["dtype"], call["target"], call["reduction"]
    x = torch.randn(call["shape"], generator=call["generator"], dtype=dtype).requires_grad_()
    weight, tokens = weights_of(call)
    numbers = call["z"], call["smoothing"]
    loss = transformer_ops.cross_entropy(
        x, target, weight, -100, *numbers, reduction, call["softcap"] or None, token_weight=tokens
    )
    wide = x.detach().double().requires_grad_()
    expected = exact(wide, target, double(weight), double(tokens), *numbers, call["softcap"], reduction)
    eps = 64 * torch.finfo(dtype).eps
    check(loss, expected.detach(), eps, 1.0)
    (found,) = torch.autograd.grad(loss, x, call["grad"].to(dtype))
    (wanted,) = torch.autograd.grad(expected, wide, call["grad"])
    check(found, torch.where((target == -100).unsqueeze(-1), 0, wanted), eps, call["grad"].abs().max().item())


@settings(max_examples=EXAMPLES, derandomize=True)
@given(calls(), st.booleans())
def test_fused_linear_cross_entropy(call, is_biased):
    dtype, target, reduction = call["dtype"], call["target"], call["reduction"]
    (rows, classes), width, generator = call["shape"], call["width"], call["generator"]
    shapes = [(rows, width), (classes, width), (classes,)][: 2 + is_biased]
    inputs = [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]
    weight, tokens = weights_of(call)
    numbers = call["z"], call["smoothing"]
    loss = transformer_ops.fused_linear_cross_entropy(
        *inputs[:2], target, *(inputs[2:] or [None]), -100, *numbers, reduction, call["softcap"], weight, tokens
    )
    wide = [one.detach().double().requires_grad_() for one in inputs]
    logits = functional.linear(*wide)
    expected = exact(logits, target, double(weight), double(tokens), *numbers, call["softcap"], reduction)
    eps = 256 * torch.finfo(dtype).eps  # of the products of matrices, too
    check(loss, expected.detach(), eps, 1.0)
    found = torch.autograd.grad(loss, inputs, call["grad"].to(dtype))
    if (target == -100).all():
        assert not any(gradient.any() for gradient in found)  # PyTorch's are nan for a mean
        return
    for one, wanted in zip(found, torch.autograd.grad(expected, wide, call["grad"]), strict=True):
        check(one, wanted, eps, call["grad"].abs().max().item())


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e4])
@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_gradients_of_rows_in_16_bits(dtype, scale):
    """As small as a mean over many rows makes them, or as large as a loss scale: summed up over parts in float32."""
    rows, width, classes = (40, 4, 32) if IS_INTERPRETED else (3000, 4, 256)
    x, weight = (torch.randn(rows, width) * 0.3).to(dtype), (torch.randn(classes, width) * 0.1 + 1).to(dtype)
    target, grad = torch.randint(classes, (rows,)), torch.rand(rows) * scale
    inputs = [one.requires_grad_() for one in (x, weight)]
    wide = [one.detach().double().requires_grad_() for one in inputs]
    # The logits are rounded to the dtype, as a linear layer's are: that is no error of the loss.
    rounded = functional.linear(*(one.detach() for one in inputs)).double()
    logits = functional.linear(*wide)
    logits = logits + (rounded - logits).detach()
    expected = functional.cross_entropy(logits, target, reduction="none")
    loss = transformer_ops.fused_linear_cross_entropy(*inputs, target, reduction="none")
    torch.testing.assert_close(loss.double(), expected)
    found, wanted = torch.autograd.grad(loss, inputs, grad), torch.autograd.grad(expected, wide, grad.double())
    for one, other in zip(found, wanted, strict=True):
        smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        allowed = 3 * torch.finfo(dtype).eps * other.abs().max() + smallest
        assert ((one.double() - other).abs() <= allowed).all()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_class_weights_in_16_bits_are_as_in_float32(reduction):
    x, target = torch.randn(6, 5).bfloat16(), torch.tensor([0, 1, -100, 4, 2, 2])
    weight = torch.rand(5).bfloat16()
    narrow, wide = (transformer_ops.cross_entropy(x, target, w, reduction=reduction) for w in (weight, weight.float()))
    assert torch.equal(narrow, wide)
    head = torch.randn(5, 5).bfloat16()
    fused = [
        transformer_ops.fused_linear_cross_entropy(x, head, target, reduction=reduction, class_weight=w)
        for w in (weight, weight.float())
    ]
    assert torch.equal(*fused)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_z_loss_of_weighted_tokens(reduction):
    x, target, tokens = torch.randn(6, 5), torch.tensor([0, 1, -100, 4, 2, 2]), torch.rand(6)
    tokens[2] = math.nan  # it does not count
    options = {"reduction": reduction, "token_weight": tokens}
    loss, z_loss = transformer_ops.cross_entropy(x, target, lse_square_scale=0.1, return_z_loss=True, **options)
    torch.testing.assert_close(loss - z_loss, transformer_ops.cross_entropy(x, target, **options))
    assert z_loss.isfinite().all()


@pytest.mark.parametrize("is_fused", [False, True])
@given(scale=st.floats(-12, 0), z=st.floats(-4, 2), reduction=st.sampled_from(REDUCTIONS), is_trained=st.booleans())
@settings(max_examples=EXAMPLES)
def test_small_cross_entropies_beside_large_z_losses(is_fused, scale, z, reduction, is_trained):
    """What the one rounds to must not be lost in the other: a mean divides them by different numbers."""
    x, head, target = torch.randn(6, 5), torch.randn(5, 5), torch.randint(5, (6,))
    weight, options = 10**scale * (0.5 + torch.rand(5)), {"lse_square_scale": 10**z, "reduction": reduction}
    x.requires_grad_(is_trained)
    if is_fused:
        loss = transformer_ops.fused_linear_cross_entropy(x, head, target, class_weight=weight, **options)
        logits = x.detach().double() @ head.double().T
    else:
        loss, logits = transformer_ops.cross_entropy(x, target, weight=weight, **options), x.detach().double()
    wanted = exact(logits, target, weight.double(), None, 10**z, 0, 0, reduction)
    torch.testing.assert_close(loss.detach().double(), wanted, rtol=1e-5, atol=0)


def test_tokens_that_a_mask_leaves_out():
    """A weight of 0 is as an ignored target."""
    x, target = torch.randn(6, 5), torch.randint(5, (6,))
    mask = torch.tensor([1.0, 0, 1, 1, 0, 0])
    ignored = torch.where(mask > 0, target, -100)
    found = transformer_ops.cross_entropy(x, target, token_weight=mask)
    torch.testing.assert_close(found, functional.cross_entropy(x, ignored))
    head = torch.randn(7, 5)
    found = transformer_ops.fused_linear_cross_entropy(x, head, target, token_weight=mask)
    torch.testing.assert_close(found, functional.cross_entropy(functional.linear(x, head), ignored))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_second_derivatives_of_the_fused_loss(reduction):
    target, tokens = torch.tensor([0, 1, -100, 2]), torch.rand(4, dtype=torch.float64)
    weight = torch.rand(3, dtype=torch.float64)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (3, 3), (3,))]

    def loss(x, head, bias):
        return transformer_ops.fused_linear_cross_entropy(
            x, head, target, bias, -100, 0.1, 0.1, reduction, 2.0, weight, tokens
        )

    assert torch.autograd.gradgradcheck(loss, inputs)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_forward_mode_and_compiled(reduction):
    target, tokens = torch.tensor([0, 1, -100, 2]), torch.rand(4)
    x, head = torch.randn(4, 3), torch.randn(5, 3)

    def loss(x):
        return transformer_ops.fused_linear_cross_entropy(x, head, target, reduction=reduction, token_weight=tokens)

    def plain(x):
        return exact(functional.linear(x, head), target, None, tokens, 0.0, 0.0, 0.0, reduction)

    direction = torch.randn_like(x)
    found, expected = (torch.func.jvp(one, (x,), (direction,)) for one in (loss, plain))
    torch.testing.assert_close(found, expected)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(compiled(leaf), loss(x))
    grad = torch.rand_like(expected[0])
    mine, wanted = (torch.autograd.grad(one(leaf), leaf, grad) for one in (compiled, loss))
    torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": "max"}, "reduction"),
        ({"token_weight": torch.ones(5)}, r"'token_weight' has shape .+ expected"),
        ({"token_weight": torch.ones(6).double()}, "'token_weight' is .*(float64|double)"),
        ({"class_weight": torch.ones(6)}, r"'class_weight' has shape .+ expected"),
        ({"class_weight": torch.ones(5).half()}, "'class_weight' is .*(float16|half)"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(options, message):
    x, target = torch.randn(6, 5), torch.zeros(6).long()
    with pytest.raises((RuntimeError, ValueError), match=message):
        transformer_ops.fused_linear_cross_entropy(x, torch.randn(5, 5), target, **options)
    options = {name.replace("class_weight", "weight"): value for name, value in options.items()}
    with pytest.raises((RuntimeError, ValueError), match=message.replace("class_weight", "weight")):
        transformer_ops.cross_entropy(x, target, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradients_of_weights(reduction):
    """PyTorch's own weights of classes have none."""
    x, head = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((6, 3), (5, 3)))
    target = torch.tensor([0, 1, -100, 4, 2, 2])
    weights = [torch.rand(n, dtype=torch.float64, requires_grad=True) for n in (5, 6)]

    def fused(weight, tokens):
        return transformer_ops.fused_linear_cross_entropy(
            x, head, target, None, -100, 0.1, 0.1, reduction, 0.0, weight, tokens
        )

    def rows(weight, tokens):
        logits = functional.linear(x, head)
        return transformer_ops.cross_entropy(logits, target, weight, -100, 0.1, 0.1, reduction, token_weight=tokens)

    assert torch.autograd.gradcheck(fused, weights)
    assert torch.autograd.gradcheck(rows, weights)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_modules_take_weights(reduction):
    x, target, tokens, weight = torch.randn(6, 5), torch.randint(5, (6,)), torch.rand(6), torch.rand(5)
    head = torch.randn(5, 5)
    rows = transformer_ops.CrossEntropyLoss(weight, reduction=reduction)
    found = rows(x, target, tokens)
    torch.testing.assert_close(found, exact(x, target, weight, tokens, 0.0, 0.0, 0.0, reduction))
    fused = transformer_ops.FusedLinearCrossEntropyLoss(reduction=reduction, class_weight=weight)
    logits = functional.linear(x, head)
    expected = exact(logits, target, weight, tokens, 0.0, 0.0, 0.0, reduction)
    torch.testing.assert_close(fused(head, x, target, token_weight=tokens), expected)
    assert torch.equal(fused.state_dict()["class_weight"], weight)
