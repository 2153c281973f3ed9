"""Streams, graphs and errors, which the kit does not ask of row operators on CUDA.

tests/wheels/test_cuda_rows.py runs this file on simulated devices; with the same environment it runs on a GPU.
"""

import subprocess
import sys

import torch

from tests.non_elementwise.device_checks import on_device, ops


def test_runs_on_the_current_stream():
    x, stream = on_device(4, 300), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        y = ops.softmax(x, -1)
        assert not stream.query(), "the call has waited"
    stream.synchronize()
    torch.testing.assert_close(y.cpu(), torch.softmax(x.cpu(), -1))


def test_graph():
    x = on_device(2, 5000)
    ops.softmax(x, -1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.softmax(x, -1)  # its rows are too long for the chip: their memory is the graph's
    x.copy_(on_device(2, 5000) * 2)
    graph.replay()
    torch.testing.assert_close(y.cpu(), torch.softmax(x.cpu(), -1))


BREAKS = """
import torch
from tests.non_elementwise.device_checks import on_device, ops

x = on_device(2, 300)
ops.softmax(x, -1)  # its result's memory is what the next call gets, without asking the device
torch.cuda.synchronize()
try:
    x[torch.tensor([99], device="cuda")]  # an assertion on the device: nothing works there any more
    torch.cuda.synchronize()
except RuntimeError:
    pass
try:
    ops.softmax(x, -1)
except RuntimeError as error:
    print("caught:", error)
"""


def test_a_launch_that_fails_says_so():
    result = subprocess.run([sys.executable, "-c", BREAKS], capture_output=True, text=True, check=False)
    assert "caught: [OPWHEEL:LAUNCH] softmax: its CUDA kernel could not be launched: " in result.stdout, result.stderr
