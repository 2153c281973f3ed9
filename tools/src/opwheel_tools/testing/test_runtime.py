"""Threads, streams, devices, memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from opwheel.dispatch.overload import Overload
from opwheel.memory.usage import allocated, kept_by

from . import reference
from .samples import arguments


@pytest.mark.subsystem("threads")
def test_threads(functional: Overload, device: torch.device) -> None:
    def work(seed: int) -> None:
        args = arguments(functional, (70, 501), torch.float32, device, seed=seed, requires_grad=True)
        results = reference.as_tuple(functional.op(*args))
        reference.check(functional, args, results if len(results) > 1 else results[0])
        torch.stack([result.sum() for result in results]).sum().backward()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(64)))


@pytest.mark.subsystem("memory")
def test_no_memory_growth_over_10_000_calls(overload: Overload, device: torch.device) -> None:
    args = arguments(overload, (64, 64), torch.float32, device)
    refused = tuple(value.int() if isinstance(value, torch.Tensor) else value for value in args)
    target = args[0].clone()

    def a_thousand_calls() -> None:
        for _ in range(1000):
            if overload.is_out:
                overload.op(*args, out=target)
            elif overload.is_in_place:
                overload.op(target, *args[1:])
            else:
                overload.op(*args)
        for _ in range(100):
            with pytest.raises(RuntimeError):
                overload.op(*refused, out=target) if overload.is_out else overload.op(*refused)

        if device.type != "cpu":
            torch.accelerator.synchronize(device)  # until it has run, a call holds memory of the host

    def ten_thousand_calls() -> None:
        for _ in range(10):
            a_thousand_calls()

    a_thousand_calls()
    tolerated = 200_000  # one leaked result a call would be 160 MB, one leaked handle a call 320 kB
    of_device = partial(torch.cuda.memory_allocated, device) if device.type == "cuda" else allocated
    growth = kept_by(ten_thousand_calls, tolerated, of_device)
    if growth is None:
        pytest.skip("this system does not tell how much memory a process takes")
    assert growth <= tolerated, f"10,000 calls take {growth} bytes more each time"


@pytest.mark.subsystem("streams and devices")
def test_current_stream(functional: Overload, device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("a CPU has no streams")
    args = arguments(functional, (1 << 20,), torch.float32, device)
    tensors = functional.tensors(args)
    stream = torch.Stream(device)
    stream.wait_stream(torch.accelerator.current_stream(device))
    with stream:
        for _ in range(30):  # keeps the stream busy, so that a kernel on another stream would come too early
            for tensor in tensors:
                tensor.mul_(1.25).mul_(0.8)
        result = functional.op(*args)
    stream.synchronize()
    reference.check(functional, args, result)


@pytest.mark.subsystem("streams and devices")
def test_second_device(functional: Overload, device: torch.device) -> None:
    if device.type == "cpu" or torch.accelerator.device_count() < 2:
        pytest.skip("there is only one device")
    second = torch.device(device.type, 1)
    args = arguments(functional, (3, 4), torch.float32, second)
    result = functional.op(*args)
    assert all(part.device == second for part in reference.as_tuple(result))
    reference.check(functional, args, result)
