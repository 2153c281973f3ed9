"""Rows that one block of threads cannot hold: clusters of blocks share them, where the device has them.

A process of its own runs this file first on a GPU: a barrier that is not reached there would never end.
"""

import pytest
import torch
import transformer_ops

from libraries.transformer.backends.cuda.tests.cuda_calls import (
    NAMES,
    ROWS,
    call,
    calls,
    check_beside_the_cpu,
    check_close_logits,
    check_graph,
    check_infinite_values,
    run,
    tensors,
    values,
)

# Of float32. A block holds 8,192 elements in most kernels and 4,096 in norms: these lengths are held by 2, 4 and 8
# blocks, or read again by 8, in all kernels or in norms alone. Those that end in 2 make no vectors.
LENGTHS = (8200, 16_400, 33_000, 65_600, 8202, 33_002)
SOME = (8200, 33_002)
SUMMED = ("rms_norm", "fused_add", "layer_norm", "softmax", "log_softmax")
WITH_CLUSTERS = [name for name in NAMES if name.startswith(SUMMED)]
WITH_CLUSTERS += ["cross_entropy", "cross_entropy, mean", "quantize_rowwise"]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", WITH_CLUSTERS)
def test_values(name, n):
    """Beside the same operators on the CPU, which are another implementation."""
    check_values(name, n, "cuda")


@pytest.mark.parametrize("n", [16_400, 33_002])
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_values_of_many_rows(name, n):
    """Several rows of each team."""
    check_values(name, n, "cuda", rows=ROWS)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_CLUSTERS])
def test_values_without_sums(name):
    check_values(name, 8200, "cuda")


def check_values(name, n, device, rows=3):
    check_beside_the_cpu(*call(name, n, torch.float32, rows=rows, device=device))


def without_clusters():
    """A device that has none, if there is one."""
    devices = (f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return next((device for device in devices if torch.cuda.get_device_capability(device)[0] < 9), None)


@pytest.mark.parametrize("n", SOME)
@pytest.mark.parametrize("name", WITH_CLUSTERS)
def test_values_without_clusters(name, n):
    """On a second device, after the first one has been asked: what is known of one does not hold for the other."""
    device = without_clusters()
    if device is None:
        pytest.skip("needs a device of a compute capability below 9.0")
    check_values(name, 8200, "cuda")
    check_values(name, n, device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("n", [16_400, 33_002])
@pytest.mark.parametrize("name", WITH_CLUSTERS)
def test_the_same_bits_in_every_call(name, n, dtype):
    function, args = call(name, n, dtype, rows=ROWS)
    first, again = run(function, args), run(function, args)
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one, other), (one - other).abs().max()


def gradients(function, args, grads):
    """Results, and the gradient of the first argument."""
    x, *rest = args
    x = x.detach().requires_grad_()
    results = tensors(function(x, *rest))
    return [one.detach() for one in results] + list(torch.autograd.grad(results, x, grads))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "softmax", "log_softmax", "cross_entropy"])
def test_a_row_does_not_depend_on_the_others(name, n):
    """With its gradient: to the last bit, whichever row of a team it is, and of which team."""
    rows = 4
    function, (x, *rest) = calls(n, torch.float32, rows=rows)[name]
    grads = [values(*one.shape) for one in tensors(function(x, *rest))]
    whole = gradients(function, (x, *rest), grads)
    for i in range(1, rows):
        of_row = [arg[i : i + 1] if isinstance(arg, torch.Tensor) and len(arg) == rows else arg for arg in rest]
        alone = gradients(function, (x[i : i + 1], *of_row), [grad[i : i + 1] for grad in grads])
        for one, of_all in zip(alone, whole, strict=True):
            assert torch.equal(one, of_all[i : i + 1]), (one - of_all[i : i + 1]).abs().max()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", ["rms_norm without weight", "log_softmax"])
def test_equal_elements_have_equal_results(name, n):
    """All blocks of a cluster have the same sums, to the last bit."""
    function, (x,) = calls(n, torch.float32, rows=3)[name]
    x, grad = (one[:, : n // 2].repeat(1, 2) for one in (x, values(3, n)))
    for one in gradients(function, (x,), [grad]):
        assert torch.equal(one[:, : n // 2], one[:, n // 2 :])


@pytest.mark.parametrize("name", ["rms_norm", "softmax", "layer_norm"])
def test_graph(name):
    check_graph(*calls(33_000, torch.bfloat16)[name])


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_infinite_values(name):
    check_infinite_values(name, 40_000)


def test_large_logits_that_are_close_together():
    check_close_logits(40_000)


def test_blocks_share_the_logits_of_a_vocabulary():
    """Where the driver finds no room for clusters, the results are the same: that they run is in the kernel's name."""
    if torch.cuda.get_device_capability()[0] < 9 or torch.cuda.get_device_name() == "simulated CUDA device":
        pytest.skip("needs a device of compute capability 9.0 or later, and its profiler")
    x = values(2, 151_936, dtype=torch.bfloat16)
    transformer_ops.softmax(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        transformer_ops.softmax(x)
        torch.cuda.synchronize()
    kernels = [event.key for event in profile.key_averages() if "SoftmaxRows" in event.key]
    if not kernels:
        pytest.skip("the profiler sees no kernels here")
    assert all("BlockOfCluster" in kernel for kernel in kernels), kernels


def test_logits_of_a_large_vocabulary():
    """The target is in the last block; the loss is that of float64."""
    x = values(2, 151_936, dtype=torch.bfloat16)
    target = torch.tensor([151_935, 0], device="cuda")
    loss = transformer_ops.cross_entropy(x, target, reduction="none")
    expected = torch.nn.functional.cross_entropy(x.cpu().double(), target.cpu(), reduction="none")
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=1e-2, atol=1e-2)
