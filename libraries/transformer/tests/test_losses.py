"""Cross entropy where numbers are hard: every combination of options, large logits, tiny gradients, many rows."""

import itertools
import math
import os

import pytest
import torch
import transformer_ops
from torch.nn import functional

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ROWS, CLASSES = 6, 5
SIXTEEN = (torch.float16, torch.bfloat16)
EPS = {dtype: torch.finfo(dtype).eps for dtype in (*SIXTEEN, torch.float32, torch.float64)}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def targets(rows=ROWS, classes=CLASSES):
    target = torch.randint(classes, (rows,))
    target[2] = -100
    return target


def error(found, expected):
    """Relative to the largest element, from which the rounding comes."""
    return ((found.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


def exact(x, target, weight, z, smoothing, softcap, reduction):
    """In PyTorch's operators, and float64."""
    x = x.double()
    logits = softcap * torch.tanh(x / softcap) if softcap else x
    weight = None if weight is None else weight.double()
    loss = functional.cross_entropy(logits, target, weight, label_smoothing=smoothing, reduction=reduction)
    squares = torch.where(target == -100, 0, z * logits.logsumexp(-1).square())
    counted = (target != -100).sum()
    return loss + {"none": squares, "sum": squares.sum(), "mean": squares.sum() / counted}[reduction]


OPTIONS = list(itertools.product([False, True], [0.0, 0.5], [0.0, 0.2], [None, 2.0], ["none", "sum", "mean"]))


@pytest.mark.parametrize(("weighted", "z", "smoothing", "softcap", "reduction"), OPTIONS)
def test_every_combination_of_options(weighted, z, smoothing, softcap, reduction):
    x, target = torch.randn(ROWS, CLASSES, dtype=torch.float64, requires_grad=True), targets()
    weight = torch.rand(CLASSES, dtype=torch.float64) if weighted else None
    loss, z_loss = transformer_ops.cross_entropy(
        x, target, weight, -100, z, smoothing, reduction, softcap, return_z_loss=True
    )
    expected = exact(x, target, weight, z, smoothing, softcap, reduction)
    torch.testing.assert_close(loss, expected)
    grad = torch.rand_like(expected)
    found, wanted = (torch.autograd.grad(one, x, grad) for one in (loss, expected))
    torch.testing.assert_close(found, wanted)
    assert not z_loss.requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e3, -1e5, 1e9, -1e20, 1e37])
def test_logits_with_a_common_offset(offset, weighted, smoothing, dtype):
    """They make no difference to a loss, but for what is lost when they are added."""
    x = (torch.randn(64, 50, dtype=torch.float64) + offset).to(dtype).requires_grad_()
    target, weight = targets(64, 50), torch.rand(50).to(dtype) if weighted else None
    expected = exact(x, target, weight, 0.0, smoothing, None, "none")
    loss = transformer_ops.cross_entropy(x, target, weight, label_smoothing=smoothing, reduction="none")
    compute = EPS[torch.float64 if dtype is torch.float64 else torch.float32]
    assert error(loss, expected) <= 16 * compute
    grad = torch.rand_like(expected)
    (wanted,) = torch.autograd.grad(expected, x, grad)
    (found,) = torch.autograd.grad(loss, x, grad.to(loss.dtype))
    assert error(found, wanted) <= max(16 * compute, 2 * EPS[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("softcap", [1e-3, 30.0, 1e4, 1e8, 1e30])
def test_caps_of_any_size(softcap, dtype):
    x, target = torch.randn(ROWS, CLASSES, dtype=dtype, requires_grad=True), targets()
    expected = exact(x, target, None, 0.1, 0.1, softcap, "mean")
    loss = transformer_ops.cross_entropy(x, target, None, -100, 0.1, 0.1, softcap=softcap)
    assert error(loss, expected) <= 32 * EPS[dtype]
    (found,), (wanted,) = torch.autograd.grad(loss, x), torch.autograd.grad(expected, x)
    assert (found - wanted).abs().max() <= 32 * EPS[dtype] * max(1.0, wanted.abs().max())


@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_weights_of_many_rows(dtype):
    """Their sum is more than float16 holds, and more than bfloat16 counts to."""
    x, target = torch.randn(70_000, 2).to(dtype).requires_grad_(), torch.randint(2, (70_000,))
    loss = transformer_ops.cross_entropy(x, target, torch.ones(2, dtype=dtype))
    plain = transformer_ops.cross_entropy(x, target)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(torch.autograd.grad(loss, x), torch.autograd.grad(plain, x))


@pytest.mark.parametrize("loss_scale", [1.0, 65536.0])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_gradients_of_a_fused_loss_in_16_bits(dtype, biased, loss_scale):
    """As small as a mean over many rows makes them, and sums over many parts of the rows."""
    rows, width, classes = 8192, 4, 4096
    x, weight = (torch.randn(rows, width) * 0.3).to(dtype), (torch.randn(classes, width) * 0.1 + 1).to(dtype)
    bias, target = torch.randn(classes).to(dtype), targets(rows, classes)
    inputs = [one.requires_grad_() for one in (x, weight, bias)[: 2 + biased]]
    wide = [one.detach().float().requires_grad_() for one in inputs]
    # The logits are rounded to the dtype, as a linear layer's are: that is no error of the loss.
    logits = functional.linear(*(one.detach() for one in inputs[:2]), bias if biased else None).float()
    logits = functional.linear(*wide) + (logits - functional.linear(*wide)).detach()
    expected = functional.cross_entropy(logits, target) * loss_scale
    loss = transformer_ops.fused_linear_cross_entropy(*inputs[:2], target, *inputs[2:]) * loss_scale
    for found, wanted in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, wide), strict=True):
        assert found.dtype is dtype
        smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # what is not scaled may be too small
        assert (found.float() - wanted).abs().max() <= 2 * EPS[dtype] * wanted.abs().max() + smallest


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_bias_gradient_is_a_sum_in_the_wide_dtype(dtype):
    """Of the logits' gradients, rounded to the dtype, as they are; of two parts of the rows as well.

    With a weight of ones on its diagonal the input is the logits, and its gradient theirs.
    """
    rows, classes = (40, 16) if IS_INTERPRETED else (1100, 1024)
    x, target = torch.randn(rows, classes).to(dtype), torch.zeros(rows, dtype=torch.int64)
    weight, bias = torch.eye(classes, dtype=dtype), torch.zeros(classes, dtype=dtype)
    training = torch.ops.transformer_ops.fused_linear_cross_entropy_training
    _, d_input, _, d_bias, _ = training(x, weight, target, bias)
    expected = d_input.double().sum(0)
    assert d_bias.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    assert ((d_bias - expected).abs() <= 32 * EPS[d_bias.dtype] * expected.abs()).all()


FACTORS = {
    "rows apart": lambda make, rows, width: make(rows, width + 3)[:, :width],
    "columns": lambda make, rows, width: make(width, rows).t(),
    "columns apart": lambda make, rows, width: make(width + 2, rows + 5).t()[:rows, 1 : 1 + width],
    "one row for all": lambda make, rows, width: make(1, width).expand(rows, width),
    "one element for all of a row": lambda make, rows, width: make(rows, 1).expand(rows, width),
    "rows that overlap": lambda make, rows, width: make(rows + width).as_strided((rows, width), (1, 1)),
    "every other element": lambda make, rows, width: make(rows, 2 * width)[:, ::2],
    "every other row": lambda make, rows, width: make(2 * rows, width)[::2],
}


@pytest.mark.parametrize("classes", [1, 7, 1024])  # of the last all rows are two parts
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", FACTORS)
def test_factors_of_a_fused_loss_as_they_lie(layout, dtype, classes):
    """As of copies whose rows follow each other, which all other tests have."""
    rows, width = 20 if IS_INTERPRETED else 1030, 5
    target = targets(rows, classes)
    given = [FACTORS[layout](lambda *shape: torch.randn(shape).to(dtype), count, width) for count in (rows, classes)]

    def computed(*factors):
        x, weight = (one.detach().requires_grad_() for one in factors)
        loss = transformer_ops.fused_linear_cross_entropy(x, weight, target)
        return loss, *torch.autograd.grad(loss, (x, weight))

    for found, expected in zip(computed(*given), computed(*(one.contiguous() for one in given)), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_fused_loss_of_nothing_that_counts():
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    loss = transformer_ops.fused_linear_cross_entropy(x, weight, torch.full((3,), -100))
    assert loss.isnan()  # as PyTorch's: a mean over no rows
    for result in (loss, loss.exp()):  # of the second one the gradient that arrives is nan
        for gradient in torch.autograd.grad(result, (x, weight), retain_graph=True):
            assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"label_smoothing": value}, "label_smoothing") for value in (-0.1, 1.1, math.nan)]
    + [({"softcap": value}, "softcap") for value in (-2.0, math.inf, math.nan)],
)
def test_numbers_without_a_meaning(options, argument):
    x, target = torch.randn(ROWS, CLASSES), targets()
    with pytest.raises((RuntimeError, ValueError), match=argument):
        transformer_ops.cross_entropy(x, target, **options)
    with pytest.raises(RuntimeError, match=rf"argument '{argument}' is {options[argument]:g}, expected "):
        transformer_ops.fused_linear_cross_entropy(x, torch.randn(7, CLASSES), target, **options)


CONFIDENT = ("one class", "several rows", "saturated", "nearly equal")


def confident(kind, rows, classes, margin):
    """Logits, and the targets that they are sure of; or logits that hardly differ."""
    x, target = torch.randn(rows, classes) / 8, torch.randint(classes, (rows,))
    if kind == "one class":
        x.zero_()
    if kind == "nearly equal":
        return 2 + x / 8, target
    x[torch.arange(rows), target] = 200.0 if kind == "saturated" else margin
    return x, target


def check_rounded_once(found, exact, dtype):
    """Of each element a half of its last place, and of a row's sum what these halves sum up to."""
    eps, smallest = torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    half = eps / 2 * exact.abs() + smallest / 2
    beyond = 2e-6 * exact.abs() + 1e-11  # of float32; float64's own p - 1 is right to 1e-14
    assert ((found.double() - exact).abs() <= half + beyond).all()
    assert (found.double().sum(-1).abs() <= half.sum(-1) + beyond.sum(-1)).all()


@pytest.mark.parametrize("margin", [8.0, 16.0, 20.0, 30.0])
@pytest.mark.parametrize("kind", CONFIDENT)
@pytest.mark.parametrize("dtype", [*SIXTEEN, torch.float32], ids=str)
def test_gradients_of_confident_rows(dtype, kind, margin):
    """p - 1 of the target has all digits, whatever exp() of the others is: so rows sum up to 0."""
    x, target = confident(kind, 7, 1000, margin)
    x = x.to(dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    loss = transformer_ops.cross_entropy(x, target, reduction="none")
    exact = functional.cross_entropy(wide, target, reduction="none")
    assert ((loss.double() - exact).abs() <= 2e-6 * exact + 1e-13).all()
    (found,) = torch.autograd.grad(loss.sum(), x)
    (wanted,) = torch.autograd.grad(exact.sum(), wide)
    check_rounded_once(found, wanted, dtype)


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"lse_square_scale": 0.1}, {"softcap": 5.0}], ids=str)
@pytest.mark.parametrize("kind", CONFIDENT)
@pytest.mark.parametrize("dtype", [*SIXTEEN, torch.float32], ids=str)
def test_gradients_of_confident_rows_with_options(dtype, kind, options):
    """Terms of either sign: their rounding in float32 stays, and no more than that."""
    x, target = confident(kind, 7, 1000, 16.0)
    target[3] = -100
    x = x.to(dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    loss = transformer_ops.cross_entropy(x, target, reduction="none", **options)
    smoothing, z = options.get("label_smoothing", 0.0), options.get("lse_square_scale", 0.0)
    expected = exact(wide, target, None, z, smoothing, options.get("softcap"), "none")
    (found,) = torch.autograd.grad(loss.sum(), x)
    (wanted,) = torch.autograd.grad(expected.sum(), wide)
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    largest = wanted.abs().amax(-1, keepdim=True).clamp_min(1)
    allowed = EPS[dtype] / 2 * wanted.abs() + smallest + 32 * EPS[torch.float32] * largest
    assert ((found.double() - wanted).abs() <= allowed).all()
    assert not found[3].any()


@pytest.mark.parametrize("margin", [8.0, 16.0, 20.0, 30.0])
@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_weight_gradients_of_confident_rows(dtype, margin):
    """Of the fused loss: each class has one row, so that no other row's gradient is added to the target's."""
    classes = 64
    x, weight = margin * torch.eye(classes).to(dtype), torch.eye(classes).to(dtype)
    target = torch.arange(classes)
    inputs, wide = [t.clone().requires_grad_() for t in (x, weight)], [t.double().requires_grad_() for t in (x, weight)]
    loss = transformer_ops.fused_linear_cross_entropy(*inputs, target, reduction="sum")
    expected = functional.cross_entropy(functional.linear(*wide), target, reduction="sum")
    assert abs(loss.double() - expected) <= 4e-6 * expected + 1e-12
    found, wanted = torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, wide)
    for one, other in zip(found, wanted, strict=True):
        smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        # Logits' gradients are rounded, their product, and what is scaled. Of float16 some are too small for it.
        allowed = 2 * EPS[dtype] * other.abs() + (margin + 1) * smallest + 1e-10
        assert ((one.double() - other).abs() <= allowed).all()
