"""What the kit does not ask of row operators on CUDA: long rows, many rows, streams, graphs, devices, errors.

tests/wheels/test_cuda_rows.py runs this file on simulated devices; with the same environment it runs on a GPU.
"""

import pytest
import torch

from tests.general import cuda_library

ops = getattr(torch.ops, cuda_library.library.namespace)
CUDA = torch.device("cuda")


def on_device(*shape, dtype=torch.float32, device=CUDA):
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=dtype).to(device)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 127, 128, 129, 511, 513, 2047, 4097])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_of_every_length(length, dtype):
    """From one thread's share to more than a block's memory on the chip (4096 of float32, 2048 of float64)."""
    x = on_device(3, length, dtype=dtype)
    torch.testing.assert_close(ops.softmax(x, -1).cpu(), torch.softmax(x.cpu(), -1))
    q, scale = ops.quantize_rowwise(x)
    assert torch.equal(q.cpu().abs().amax(-1), torch.full((3,), 127, dtype=torch.int8))
    torch.testing.assert_close(scale.cpu(), x.cpu().float().abs().amax(-1) / 127)


def test_nan_is_the_largest():
    x = on_device(2, 300)
    x[1, 270] = float("nan")
    assert ops.quantize_rowwise(x)[1].isnan().tolist() == [False, True]


def test_many_rows():
    x = on_device(3000, 4)
    y, rstd = ops.rms_norm(x, torch.ones(4, device=CUDA), 0.0)
    want = x.cpu().double().pow(2).mean(-1).rsqrt()
    torch.testing.assert_close(rstd.cpu().double(), want, rtol=1e-6, atol=0)
    torch.testing.assert_close(y.cpu().double(), x.cpu().double() * want[:, None], rtol=1e-6, atol=1e-6)


def test_the_same_in_every_call():
    x = on_device(5, 1000)
    assert torch.equal(ops.softmax(x, -1), ops.softmax(x, -1))


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


needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")


@needs_two
def test_second_device():
    x = on_device(3, 5000, device=torch.device("cuda", 1))
    y = ops.softmax(x, -1)
    assert y.device == x.device
    torch.testing.assert_close(y.cpu(), torch.softmax(x.cpu(), -1))


@needs_two
def test_arguments_on_two_devices():
    with pytest.raises(RuntimeError, match="argument 'weight' is on cuda:1, but 'x' is on cuda:0"):
        ops.rms_norm(on_device(3, 4), on_device(4, device=torch.device("cuda", 1)), 0.0)


def test_an_argument_on_the_host():
    with pytest.raises(RuntimeError, match="argument 'weight' is on cpu, but 'x' is on cuda:0"):
        ops.rms_norm(on_device(3, 4), torch.ones(4), 0.0)


def test_no_rows():
    assert ops.softmax(on_device(0, 4), -1).shape == (0, 4)
