"""Streams and graphs, which the kit does not ask of row operators on CUDA.

tests/wheels/test_cuda_rows.py runs this file on simulated devices; with the same environment it runs on a GPU.
"""

import torch

from tests.general.device_checks import on_device, ops


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
