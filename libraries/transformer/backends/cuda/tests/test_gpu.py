"""What only a device shows: streams, graphs, bits that stay, ways to share a row, assertions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformer_ops

from libraries.transformer.backends.cuda.tests.cuda_calls import (
    DTYPES,
    NAMES,
    ROWS,
    an_element_later,
    call,
    calls,
    check_beside_the_cpu,
    check_close_logits,
    check_graph,
    check_infinite_values,
    differentiable,
    run,
    tensors,
    values,
    with_gaps,
)

HERE = Path(__file__).parent
# A part of a warp, a warp, a block that holds a row; elements that make no vector. Longer ones: test_long_rows.py.
LENGTHS = (2, 8, 64, 250, 1024, 4096)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_share_a_row(name, n):
    """Beside the same operators on the CPU, whose kernels or references are another implementation."""
    check_beside_the_cpu(*call(name, n, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [64, 4090, 4096])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_in_every_call(name, n, dtype):
    function, args = call(name, n, dtype, rows=ROWS)
    if name == "reshape_and_cache":
        pytest.skip("it writes what it is given")
    first, again = run(function, args), run(function, args)
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one, other), (one - other).abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_the_others(name):
    if "cross_entropy" in name or name == "reshape_and_cache" or name.startswith("rope"):
        pytest.skip("its rows are not those of its first argument, or of one result")
    function, args = calls(1000, torch.bfloat16, rows=7)[name]
    whole = tensors(function(*args))
    part = [arg[2:3] if isinstance(arg, torch.Tensor) and arg.shape[:1] == (7,) else arg for arg in args]
    for one, of_all in zip(tensors(function(*part)), whole, strict=True):
        assert torch.equal(one, of_all[2:3])


def _skip_where_operators_of_pytorch_wait(name):
    """On simulated devices they compute on the CPU: matrix products, and what reduces losses."""
    if "cross_entropy" in name and torch.cuda.get_device_name() == "simulated CUDA device":
        pytest.skip("simulated devices wait for operators of PyTorch, and cannot capture them")


@pytest.mark.parametrize("name", NAMES)
def test_waits_for_nothing_and_uses_the_current_stream(name):
    _skip_where_operators_of_pytorch_wait(name)
    function, args = call(name, 64, torch.float32)
    expected = run(function, args)
    if name == "reshape_and_cache":
        args[2].zero_(), args[3].zero_()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.no_grad():
        torch.cuda._sleep(200_000_000)
        results = tensors(function(*args)) or list(args[2:4])
        assert not stream.query(), "the call has waited"
    stream.synchronize()
    if name == "reshape_and_cache":
        return
    for one, other in zip(results, expected, strict=False):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_graph(name):
    _skip_where_operators_of_pytorch_wait(name)
    check_graph(*calls(256, torch.bfloat16)[name])


FIRST_CALL = """
import torch, transformer_ops
x = torch.randn(2, {n}, device="cuda", dtype=torch.float64).bfloat16()
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    captured = transformer_ops.rms_norm(x)
graph.replay()
print("the same:", torch.equal(captured, transformer_ops.rms_norm(x)))
"""


@pytest.mark.parametrize("n", [4096, 33_000])
def test_graph_of_the_first_call(n):
    """What CUDA loads, and what is asked about the device, while a stream is captured; clusters share the long rows."""
    command = [sys.executable, "-c", FIRST_CALL.format(n=n)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.stdout == "the same: True\n", result.stderr[-2000:]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_devices():
    for name in NAMES:
        function, args = calls(64, device="cuda:1")[name]
        for result in tensors(function(*args)):
            assert result.device == torch.device("cuda:1")
    with pytest.raises(RuntimeError, match="'weight' is on cuda:1, but 'x' is on cuda:0"):
        transformer_ops.rms_norm(values(3, 8), values(8, device="cuda:1"))


def test_empty():
    for shape in ((0, 8), (3, 0), (0, 0)):
        x = values(*shape)
        assert transformer_ops.softmax(x).shape == shape
        assert transformer_ops.rms_norm(x, values(shape[-1])).shape == shape
        assert transformer_ops.swiglu(x, x).shape == shape
        _, scale = transformer_ops.quantize_rowwise(x)
        assert not scale.any()
    x, w = values(0, 8).requires_grad_(), values(8).requires_grad_()
    transformer_ops.layer_norm(x, w, w).sum().backward()
    assert not w.grad.any()


@pytest.mark.parametrize("n", [64, 4090, 4096])
@pytest.mark.parametrize("name", ["rms_norm", "fused_add_rms_norm", "layer_norm"])
def test_many_rows(name, n):
    """Several of each team, which adds up gradients of weights in registers, or in memory; a block that is not full."""
    check_beside_the_cpu(*call(name, n, torch.float32, rows=ROWS + 6))


@pytest.mark.parametrize("place", [an_element_later, with_gaps])
@pytest.mark.parametrize("name", NAMES)
def test_one_tensor_that_makes_no_vectors(name, place):
    """All others do: a load of 16 bytes from anywhere else ends in an error of the device."""
    function, args = call(name, 64, torch.float32)
    for i, arg in enumerate(args):
        if isinstance(arg, torch.Tensor):
            placed = place(arg).requires_grad_(arg.requires_grad)
            check_beside_the_cpu(function, [*args[:i], placed, *args[i + 1 :]])
    results = tensors(function(*args))
    if any(one.requires_grad for one in results):
        wanted = differentiable(args)
        grads = [torch.randn_like(one) for one in results]
        expected = torch.autograd.grad(results, wanted, grads, allow_unused=True, retain_graph=True)
        for i, grad in enumerate(grads):
            if grad.ndim == 0:
                continue
            placed = [*grads[:i], place(grad), *grads[i + 1 :]]
            for one, other in zip(
                torch.autograd.grad(results, wanted, placed, allow_unused=True, retain_graph=True),
                expected,
                strict=True,
            ):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [2, 3, 8])
def test_a_cache_whose_last_dimension_has_one_element(heads):
    """The stride of one element may be anything."""
    keys, slots = values(2, 3, heads, 1), torch.tensor([4, 1, -1], device="cuda")
    caches = [values(1, 2, 4, heads).permute(1, 2, 3, 0) for _ in "kv"]
    expected = [one.cpu() for one in caches]
    transformer_ops.reshape_and_cache(*keys, *caches, slots)
    transformer_ops.reshape_and_cache(*keys.cpu(), *expected, slots.cpu())
    assert all(torch.equal(one.cpu(), other) for one, other in zip(caches, expected, strict=True))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("n", [4, 4096])
def test_softmax_of_infinite_values(name, n):
    check_infinite_values(name, n)


@pytest.mark.parametrize("n", [64, 4096])
def test_large_logits_that_are_close_together(n):
    check_close_logits(n)


ASSERTS = """
import torch, transformer_ops
x = torch.randn(3, 8, device="cuda")
try:
    {call}
    torch.cuda.synchronize()
except RuntimeError as error:
    print("caught:", error)
"""
WRONG_VALUES = {
    "target": "transformer_ops.cross_entropy(x, torch.tensor([0, 8, 1], device='cuda'))",
    "target, of a linear layer with weights": "transformer_ops.fused_linear_cross_entropy(x.requires_grad_(), x, "
    "torch.tensor([0, 2**40, 1], device='cuda'), class_weight=torch.ones(3, device='cuda'))",
    "position_ids": "transformer_ops.rope(x[None, None], x[None, None], x, x, torch.tensor([0, 1, 3], device='cuda'))",
    "slot_mapping": "transformer_ops.reshape_and_cache(x[:, None], x[:, None], x.new_zeros(1, 2, 1, 8), "
    "x.new_zeros(1, 2, 1, 8), torch.tensor([0, 1, 2], device='cuda'))",
}


@pytest.mark.parametrize("wrong", WRONG_VALUES)
def test_the_device_asserts_what_it_alone_can_see(wrong):
    command = [sys.executable, "-c", ASSERTS.format(call=WRONG_VALUES[wrong])]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    argument = wrong.partition(",")[0]
    assert "caught: " in result.stdout, result.stderr[-2000:]
    assert f"argument '{argument}' has" in result.stderr, result.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
def test_compute_sanitizer(tool):
    path = f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=path)
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed")
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, str(HERE / "short_run.py")]
    # Without the cache each tensor is an allocation of its own: an access past its end is seen.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=500)
    report = (result.stdout + result.stderr)[-4000:]
    if "Device not supported" in report:
        pytest.skip("compute-sanitizer does not support this device or system")
    assert result.returncode == 0, report
    assert "every call was made" in result.stdout, report
