"""Streams, devices and memory: what only shows where work is asynchronous and a device's memory is its own."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
CALLS = {
    "muladd": lambda ops, x, y: ops.muladd(x, y, 1.0),
    "muladd.out": lambda ops, x, y: ops.muladd.out(x, y, 1.0, out=torch.empty_like(x)),
    "muladd_": lambda ops, x, y: ops.muladd_(x, y, 1.0),
    "muladd_backward": lambda ops, x, y: ops.muladd_backward(x, x, y)[1],
    "fma": lambda ops, x, y: ops.fma(x, y, x),
    "mul": lambda ops, x, y: ops.mul(x, y),
    "add.out": lambda ops, x, y: ops.add.out(x, y, out=torch.empty_like(x)),
}


@pytest.fixture
def ops(simulator):
    import muladd

    muladd.require("sycl")
    return torch.ops.muladd


def run(code, **environment):
    """Run Python on the simulated XPUs in a process of its own."""
    program = "import simulated_xpu, torch, muladd, ctypes\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")} | environment,
    )


def behind_a_busy_stream(simulator, ops):
    """The result of an operator whose inputs are written by earlier work on its stream, which has not begun yet."""
    old, new = (torch.full((5000,), value, device="xpu") for value in (100.0, 3.0))
    inputs = torch.empty_like(old), torch.empty_like(old)
    for tensor in inputs:
        tensor.copy_(old)
    ops.muladd(*inputs, 1.0)  # loads the kernel
    stream = torch.Stream("xpu")
    torch.accelerator.synchronize()
    with stream, simulator.held(stream):
        for tensor in inputs:
            tensor.copy_(new)
        start = time.perf_counter()
        result = ops.muladd(*inputs, 1.0)
        seconds = time.perf_counter() - start
        time.sleep(0.1)  # whatever does not wait for the stream is over by now
        assert not stream.query()
    stream.synchronize()
    return result.cpu(), seconds


def test_follows_the_current_stream_and_does_not_wait(simulator, ops):
    result, seconds = behind_a_busy_stream(simulator, ops)
    assert torch.equal(result, torch.full((5000,), 10.0))
    assert seconds < simulator.HOLD_AT_MOST_S / 2


def test_the_simulation_shows_a_kernel_on_the_wrong_stream(simulator, ops):
    with simulator.default_queue_for_every_stream():
        result, _ = behind_a_busy_stream(simulator, ops)
    assert not torch.equal(result, torch.full((5000,), 10.0))


def test_another_stream_is_not_held_up(simulator, ops):
    x = torch.ones(5000, device="xpu")
    busy, free = torch.Stream("xpu"), torch.Stream("xpu")
    torch.accelerator.synchronize()
    with simulator.held(busy), free:
        result = ops.muladd(x, x, 1.0)
        free.synchronize()
        assert not busy.query()
    assert torch.equal(result.cpu(), torch.full((5000,), 2.0))


def test_an_event_orders_two_streams(simulator, ops):
    x, new = torch.ones(5000, device="xpu"), torch.full((5000,), 3.0, device="xpu")
    writer, reader = torch.Stream("xpu"), torch.Stream("xpu")
    torch.accelerator.synchronize()
    with simulator.held(writer):
        with writer:
            x.copy_(new)
        reader.wait_event(writer.record_event())
        with reader:
            result = ops.muladd(x, x, 1.0)
        time.sleep(0.1)
    reader.synchronize()
    assert torch.equal(result.cpu(), torch.full((5000,), 10.0))


def test_inputs_may_be_freed_before_the_kernel_runs(simulator, ops):
    source = torch.full((5000,), 3.0, device="xpu")
    stream = torch.Stream("xpu")
    torch.accelerator.synchronize()
    with stream, simulator.held(stream):
        results = [ops.muladd(source.clone(), source.clone(), float(i)) for i in range(20)]
    stream.synchronize()
    for i, result in enumerate(results):
        assert torch.equal(result.cpu(), torch.full((5000,), 9.0 + i))


def test_the_simulation_overwrites_freed_memory(simulator):
    x = torch.ones(5000, device="xpu")
    address = x.data_ptr()
    del x
    again = torch.empty(5000, device="xpu")
    assert again.data_ptr() == address
    assert again.isnan().all()


@pytest.mark.parametrize("name", CALLS)
def test_the_other_device(ops, name):
    x = torch.arange(1.0, 101.0, device="xpu:1")
    result = CALLS[name](ops, x.clone(), x)
    assert result.device == torch.device("xpu:1")
    assert torch.accelerator.current_device_index() == 0
    expected = CALLS[name](ops, x.cpu().to("xpu:0"), x.cpu().to("xpu:0"))
    assert torch.equal(result.cpu(), expected.cpu())


@pytest.mark.parametrize("name", CALLS)
def test_two_devices_in_one_call_are_refused(ops, name):
    x, y = torch.ones(100, device="xpu:0"), torch.ones(100, device="xpu:1")
    for first, second in ((x, y), (y, x)):
        with pytest.raises(RuntimeError) as caught:
            CALLS[name](ops, first, second)
        assert "xpu:0" in str(caught.value)
        assert "xpu:1" in str(caught.value)


def test_a_launch_that_fails_says_so(simulator, ops):
    import muladd

    x = torch.ones(100, device="xpu")
    for call in (ops.muladd_, muladd.muladd_):
        with (
            simulator.no_queue(),
            pytest.raises(RuntimeError, match=r"^.OPWHEEL:LAUNCH. muladd_: .* no SYCL"),
        ):
            call(x, x, 1.0)
    assert torch.equal(x.cpu(), torch.ones(100))


def test_out_of_memory_is_the_device_s_own_error(ops):
    import muladd

    huge = torch.ones(1, device="xpu").expand(2**40)
    for call in (ops.mul, muladd.mul):
        with pytest.raises(RuntimeError, match=r"^simulated XPU 0: out of memory"):
            call(huge, huge)


DISGUISED = """
    elsewhere, x = torch.ones(1000, device="xpu:1"), torch.ones(1000, device="xpu:0")
    disguised = torch.empty(0, device="xpu:0").set_(elsewhere.untyped_storage(), 0, (1000,), (1,))
    simulated_xpu.close_memory()
    muladd.mul({}, x)
    torch.accelerator.synchronize()
    print("survived")
"""


READ_BY_THE_HOST = """
    x = torch.ones(1000, device="xpu")
    {}
    ctypes.string_at(x.data_ptr(), 4)
    print("survived")
"""


@pytest.mark.parametrize(
    ("code", "survives"),
    [
        (DISGUISED.format("x"), True),
        (DISGUISED.format("disguised"), False),
        (READ_BY_THE_HOST.format(""), True),
        (READ_BY_THE_HOST.format("simulated_xpu.close_memory()"), False),
    ],
    ids=["kernel, own memory", "kernel, other device's memory", "host, open memory", "host, closed memory"],
)
def test_the_simulation_kills_who_touches_memory_that_is_not_its_own(code, survives):
    result = run(code)
    assert ("survived" in result.stdout) == survives, result.stderr
    assert (result.returncode == 0) == survives


def test_operators_do_not_read_device_memory_on_the_host():
    code = "x = torch.ones(1000, device='xpu')\nscalar = torch.ones((), device='xpu', dtype=torch.float64)\n"
    for call in ("muladd(x, x, 1.0)", "fma(x, scalar, scalar)", "scale(x.t(), 2.0, out=torch.empty(0, device='xpu'))"):
        code += f"simulated_xpu.close_memory()\nmuladd.{call}\n"
    result = run(code + "print('survived')")
    assert "survived" in result.stdout, result.stderr


@pytest.mark.parametrize("dims", [12, 13, 15])
def test_more_dimensions_than_one_launch_walks(ops, dims):
    x = torch.arange(2.0**dims).reshape((2,) * dims)
    y = x.permute(*reversed(range(dims)))
    result = ops.muladd(x.to("xpu"), y.to("xpu"), 1.0)
    assert torch.equal(result.cpu(), x * y + 1)
    out = torch.zeros((2,) * dims, device="xpu").permute(*range(1, dims), 0)
    ops.muladd.out(x.to("xpu"), y.to("xpu"), 1.0, out=out)
    assert torch.equal(out.cpu(), x * y + 1)
