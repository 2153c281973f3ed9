"""What the kit does not ask of row operators on a device: long rows, many rows, two devices, errors.

WAVES_DEVICE names it. tests/wheels runs this file on simulated devices; with the same environment it runs on a GPU.
"""

import pytest
import torch

from tests.non_elementwise import device_library

ops = getattr(torch.ops, device_library.library.namespace)
DEVICE = torch.device(device_library.DEVICE)


def on_device(*shape, dtype=torch.float32, device=DEVICE):
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=dtype).to(device)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 511, 513, 2047, 4097])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_of_every_length(length, dtype):
    """From one thread's share to more than a group's memory on the chip (4096 of float32, 2048 of float64)."""
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
    y, rstd = ops.rms_norm(x, torch.ones(4, device=DEVICE), 0.0)
    want = x.cpu().double().pow(2).mean(-1).rsqrt()
    torch.testing.assert_close(rstd.cpu().double(), want, rtol=1e-6, atol=0)
    torch.testing.assert_close(y.cpu().double(), x.cpu().double() * want[:, None], rtol=1e-6, atol=1e-6)


def test_the_same_in_every_call():
    x = on_device(5, 1000)
    assert torch.equal(ops.softmax(x, -1).cpu(), ops.softmax(x, -1).cpu())


needs_two = pytest.mark.skipif(torch.accelerator.device_count() < 2, reason="needs two devices")


@needs_two
def test_second_device():
    x = on_device(3, 5000, device=torch.device(DEVICE.type, 1))
    y = ops.softmax(x, -1)
    assert y.device == x.device
    torch.testing.assert_close(y.cpu(), torch.softmax(x.cpu(), -1))


@needs_two
def test_arguments_on_two_devices():
    message = rf"argument 'weight' is on {DEVICE.type}:1, but 'x' is on {DEVICE.type}:0; move it with .to"
    with pytest.raises(RuntimeError, match=message):
        ops.rms_norm(on_device(3, 4), on_device(4, device=torch.device(DEVICE.type, 1)), 0.0)


def test_an_argument_on_the_host():
    with pytest.raises(RuntimeError, match=f"argument 'weight' is on cpu, but 'x' is on {DEVICE.type}:0"):
        ops.rms_norm(on_device(3, 4), torch.ones(4), 0.0)


def test_no_rows():
    assert ops.softmax(on_device(0, 4), -1).shape == (0, 4)
