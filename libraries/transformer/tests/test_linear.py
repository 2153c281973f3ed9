"""The linear layer: values and gradients are PyTorch's, and a row's bits are the same wherever it is."""

import os
import subprocess
import sys

import pytest
import torch
import transformer_ops
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
STATUS = transformer_ops.backends().get("cpu")
needs_the_kernels = pytest.mark.skipif(STATUS is None or STATUS.state != "loaded", reason="needs transformer-ops-cpu")


def inputs(rows, features_in, features_out, dtype, seed=0):
    """x, weight, bias and the gradient of the result."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((*rows, features_in), (features_out, features_in), (features_out,), (*rows, features_out))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def tiny(dtype):
    """What numbers next to zero are rounded by."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def with_gradients(linear, x, weight, bias, grad):
    leaves = [one.detach().requires_grad_() for one in (x, weight, bias) if one is not None]
    y = linear(*leaves)
    return y.detach(), *torch.autograd.grad(y, leaves, grad)


@settings(max_examples=40)
@given(
    rows=st.lists(st.integers(0, 9), max_size=3),
    features_in=st.integers(0, 40) | st.sampled_from([255, 256, 257, 600]),
    features_out=st.integers(0, 40) | st.sampled_from([63, 64, 65, 129]),
    is_biased=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
def test_values_and_gradients(rows, features_in, features_out, is_biased, dtype, seed):
    x, weight, bias, grad = inputs(rows, features_in, features_out, dtype, seed)
    bias = bias if is_biased else None
    wide = [None if one is None else one.double() for one in (x, weight, bias, grad)]
    sizes = [None if one is None else one.abs() for one in wide]
    found = with_gradients(transformer_ops.linear, x, weight, bias, grad)
    exact, of_sizes = (with_gradients(functional.linear, *given) for given in (wide, sizes))
    summed = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    for one, right, size in zip(found, exact, of_sizes, strict=True):
        assert one.shape == right.shape
        assert one.dtype == dtype
        # Rounded once; sums by what they may lose.
        assert ((one - right).abs() <= torch.finfo(dtype).eps * right.abs() + 16 * summed * size + tiny(dtype)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_long_sums_are_as_accurate_as_pytorchs(dtype):
    """But for those of the bias, which PyTorch adds up in more parts."""
    tensors = inputs((1500,), 5000, 40, dtype)
    ours, theirs, exact = (
        with_gradients(linear, *given)
        for linear, given in (
            (transformer_ops.linear, tensors),
            (functional.linear, tensors),
            (functional.linear, [one.double() for one in tensors]),
        )
    )
    for one, other, right, factor in zip(ours, theirs, exact, (1.25, 1.25, 1.25, 4), strict=True):
        mine, its = ((found.double() - right).square().mean().sqrt() for found in (one, other))
        assert mine <= factor * its


@needs_the_kernels
@pytest.mark.parametrize(
    "size", [65, 300, pytest.param(2048, marks=[pytest.mark.slow, pytest.mark.nightly])], ids="{} features".format
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_an_anchor_row_in_batches_of_any_size(dtype, size):
    """One row, in the first, the middle and the last place of batches, as in issue 2986 of TransformerEngine."""
    anchor, weight, bias, grad = inputs((1,), size, size, dtype)
    alone = transformer_ops.linear(anchor, weight, bias), torch.ops.transformer_ops.linear_backward_input(grad, weight)
    for rows in (1, 2, 17, 33, 128, 257, 1024):
        others, _, _, gradients = inputs((rows,), size, size, dtype, seed=rows)
        for place in {0, rows // 2, rows - 1}:
            others[place], gradients[place] = anchor[0], grad[0]
            assert torch.equal(transformer_ops.linear(others, weight, bias)[place], alone[0][0])
            d = torch.ops.transformer_ops.linear_backward_input(gradients, weight)
            assert torch.equal(d[place], alone[1][0])


@needs_the_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_part_of_the_features_has_the_bits_that_it_has_among_all(dtype):
    """As where a layer's results are divided over devices."""
    x, weight, bias, grad = inputs((70,), 300, 150, dtype)
    y, _, d_weight, d_bias = with_gradients(transformer_ops.linear, x, weight, bias, grad)
    for part in (slice(0, 1), slice(0, 75), slice(75, 150), slice(31, 97)):
        found = with_gradients(transformer_ops.linear, x, weight[part], bias[part], grad[:, part])
        assert torch.equal(found[0], y[:, part])
        assert torch.equal(found[2], d_weight[part])
        assert torch.equal(found[3], d_bias[part])


def test_derivatives_of_any_order():
    x, weight, bias, _ = (one.requires_grad_() for one in inputs((2, 3), 5, 4, torch.float64))
    assert torch.autograd.gradcheck(transformer_ops.linear, (x, weight, bias), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(transformer_ops.linear, (x, weight, bias))


def test_nothing_is_computed_for_what_needs_no_gradient():
    x, weight, _, grad = inputs((2, 3), 5, 4, torch.float32)
    for wanted, operator in ((x, "linear_backward_input"), (weight, "linear_backward_weight")):
        wanted.requires_grad_()
        y = transformer_ops.linear(x, weight)
        with torch.profiler.profile() as profile:
            y.backward(grad)
        ran = {event.name for event in profile.events() if "linear_backward" in event.name}
        assert ran == {f"transformer_ops::{operator}"}
        wanted.requires_grad_(False)


def test_nan_and_infinity_stay_in_their_rows():
    x, weight, bias, _ = inputs((5,), 40, 33, torch.float32)
    x[1, 3], x[3, 39] = float("nan"), float("inf")
    found, theirs = transformer_ops.linear(x, weight, bias), functional.linear(x, weight, bias)
    torch.testing.assert_close(found, theirs, equal_nan=True)


def test_autocast_and_its_count_of_operations_are_pytorchs():
    x, weight, bias, _ = inputs((2, 3), 8, 4, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert transformer_ops.linear(x, weight, bias).dtype == torch.bfloat16
    counts = []
    for linear in (transformer_ops.linear, functional.linear):
        with FlopCounterMode(display=False) as counter:
            linear(x.clone().requires_grad_(), weight.clone().requires_grad_()).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1]


@needs_the_kernels
@pytest.mark.parametrize("capability", [pytest.param("baseline", marks=pytest.mark.nightly), "avx2"])
def test_on_older_processors(capability):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = os.environ | {"TRANSFORMER_OPS_CPU_CAPABILITY": capability}
    chosen = ["-k", "values or accurate or (anchor and 65) or features"]
    done = subprocess.run([*command, *chosen], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
