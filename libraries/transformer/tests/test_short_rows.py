"""Rows of no more elements than a vector has, which are computed side by side, and those that are a little longer."""

import pytest
import torch
import transformer_ops
from torch.nn import functional

WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 64, 65)
ROWS = (1, 2, 7, 8, 9, 15, 16, 17, 40, 1100)
TOLERANCES = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}
LAYOUTS = {
    "contiguous": lambda x: x,
    "rows apart": lambda x: functional.pad(x, (0, 3))[:, : x.shape[1]],
    "one row for all": lambda x: x[:1].expand_as(x),
}


def fused(x, weight):
    x, residual = x.clone(), x.flip(0) * 2
    transformer_ops.fused_add_rms_norm_(x, residual, weight)
    return torch.cat((x, residual))


def fused_reference(x, weight):
    residual = x + x.flip(0) * 2
    return torch.cat((functional.rms_norm(residual, x.shape[1:], weight, 1e-6), residual))


OPERATORS = {
    "softmax": (lambda x, weight: transformer_ops.softmax(x), lambda x, weight: x.softmax(-1)),
    "log_softmax": (lambda x, weight: transformer_ops.log_softmax(x), lambda x, weight: x.log_softmax(-1)),
    "layer_norm": (
        lambda x, weight: transformer_ops.layer_norm(x, weight, weight),
        lambda x, weight: functional.layer_norm(x, x.shape[1:], weight, weight),
    ),
    "rms_norm": (
        lambda x, weight: transformer_ops.rms_norm(x, weight),
        lambda x, weight: functional.rms_norm(x, x.shape[1:], weight, 1e-6),
    ),
    "fused_add_rms_norm_": (fused, fused_reference),
    "swiglu": (
        lambda x, weight: transformer_ops.swiglu(x, x),
        lambda x, weight: functional.silu(x) * x,
    ),
    "geglu": (
        lambda x, weight: transformer_ops.geglu(x, x),
        lambda x, weight: functional.gelu(x, approximate="tanh") * x,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_rows_of_every_width(name, dtype, layout):
    operator, reference = OPERATORS[name]
    torch.manual_seed(0)
    for rows in ROWS:
        for width in WIDTHS:
            x = LAYOUTS[layout]((torch.randn(rows, width) * 3).to(dtype))
            weight = torch.randn(width).to(dtype)
            want = reference(x.double(), weight.double())
            bound = TOLERANCES[dtype] * (4 + want.abs().max())
            found = operator(x, weight)
            assert (found.double() - want).abs().max() <= bound, (rows, width)
            assert torch.equal(operator(x, weight), found)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_losses_of_every_width(dtype, softcap, weighted, smoothing):
    """Of rows that are ignored as well, and with every target."""
    torch.manual_seed(0)
    for rows in ROWS:
        for width in WIDTHS:
            x = (torch.randn(rows, width) * 3).to(dtype)
            target = torch.arange(rows) % width
            target[::3] = -100
            weight = torch.rand(width, dtype=torch.promote_types(dtype, torch.float32)) if weighted else None
            found = transformer_ops.cross_entropy(
                x, target, weight, softcap=softcap, label_smoothing=smoothing, reduction="none"
            )
            wide = x.double() if softcap is None else softcap * torch.tanh(x.double() / softcap)
            want = functional.cross_entropy(
                wide, target, None if weight is None else weight.double(), label_smoothing=smoothing, reduction="none"
            )
            assert found[::3].count_nonzero() == 0
            assert (found.double() - want).abs().max() <= 8 * max(TOLERANCES[dtype], 1e-15) * (1 + want.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_nearly_certain_row_keeps_its_digits(dtype):
    """The others' weights, which are all that its logarithm and its loss are made of."""
    for width in WIDTHS[1:]:
        for distance in (1.0, 10.0, 30.0):
            x = torch.full((20, width), -distance, dtype=dtype)
            x[:, width // 2] = 0
            want = torch.log1p((width - 1) * torch.tensor(-distance, dtype=torch.float64).exp())
            loss = transformer_ops.cross_entropy(x, torch.full((20,), width // 2), reduction="none")
            logs = -transformer_ops.log_softmax(x)[:, width // 2]
            for found in (loss, logs):
                torch.testing.assert_close(found.double(), want.expand(20), rtol=8 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_special_numbers_are_pytorchs(name):
    inf, nan = float("inf"), float("nan")
    rows = [[0.0, -inf, 1.0], [-inf] * 3, [nan, 0.0, 1.0], [1.0, nan, -inf], [2.0, 2.0, 2.0], [-inf, -inf, 5.0]]
    for width in WIDTHS[2:]:
        x = torch.tensor([[*row, *row[-1:] * (width - 3)] for row in rows])
        expected = getattr(functional, name)(x, -1)
        torch.testing.assert_close(OPERATORS[name][0](x, None), expected, equal_nan=True)


@pytest.mark.parametrize(
    "name", sorted(OPERATORS.keys() - {"fused_add_rms_norm_"})
)  # the residuals here are other rows
def test_a_row_alone_has_the_bits_that_it_has_among_many(name):
    operator, _ = OPERATORS[name]
    for width in WIDTHS:
        x, weight = torch.randn(37, width), torch.randn(width)
        among = operator(x, weight)
        assert all(torch.equal(operator(x[i : i + 1], weight)[0], among[i]) for i in range(37))
