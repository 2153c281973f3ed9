"""Streams and memory, which the kit does not ask of row operators on an XPU: tests/wheels/test_sycl_rows.py runs this
file on simulated devices."""

import pytest
import simulated_xpu
import torch

from tests.non_elementwise.device_checks import on_device, ops


def test_runs_on_the_current_stream():
    x, stream = on_device(4, 300), torch.Stream("xpu")
    ops.softmax(x, -1)  # loads the kernel
    torch.accelerator.synchronize()
    with stream, simulated_xpu.held(stream):
        y = ops.softmax(x, -1)
        assert not stream.query(), "the call has waited"
    stream.synchronize()
    torch.testing.assert_close(y.cpu(), torch.softmax(x.cpu(), -1))


def test_memory_of_long_rows_lasts_until_the_kernel_has_run():
    """It is freed, and then overwritten by the simulation, in the order of its stream."""
    x, stream = on_device(3, 5000), torch.Stream("xpu")
    ops.softmax(x, -1)
    torch.accelerator.synchronize()
    with stream, simulated_xpu.held(stream):
        results = [ops.softmax(x, -1) for _ in range(3)]
    stream.synchronize()
    for y in results:
        torch.testing.assert_close(y.cpu(), torch.softmax(x.cpu(), -1))


def test_the_host_does_not_touch_the_device_s_memory():
    x = on_device(2, 5000)
    simulated_xpu.close_memory()
    ops.quantize_rowwise(x)
    torch.accelerator.synchronize()


def test_a_launch_that_fails_says_so():
    x = on_device(2, 30)
    said = r"^\[OPWHEEL:LAUNCH\] softmax: PyTorch gave no SYCL queue"
    with simulated_xpu.no_queue(), pytest.raises(RuntimeError, match=said):
        ops.softmax(x, -1)
