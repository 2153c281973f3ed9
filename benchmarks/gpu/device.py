"""Clocks, streams and graphs of a device; without a GPU there is the host's clock alone."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from opwheel_tools.bench.sampling import Timer, clock_for

Call = Callable[[], Any]
MOST_SETS = 8


class Device:
    """Where the calls run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_gpu = name != "cpu"
        self.clock = clock_for(name)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Not the default one, which cannot be captured, from the start: a gradient's node stays on its stream."""
        if not self.is_gpu:
            yield
            return
        with torch.cuda.stream(torch.cuda.Stream()):
            yield
            self.synchronize()

    def synchronize(self) -> None:
        """Wait for every call, and raise what has gone wrong."""
        if self.is_gpu:
            torch.cuda.synchronize()

    def host_clock(self, timer: Timer, calls: int) -> float:
        """Seconds that it takes to enqueue so many calls."""
        self.synchronize()
        return timer.timeit(calls)

    def sets(self, size: int) -> int:
        """How many inputs of so many bytes do not find each other in the cache."""
        cache = torch.cuda.get_device_properties().L2_cache_size if self.is_gpu else 0
        return min(MOST_SETS, max(1, -(-2 * cache // size)))

    def captured(self, calls: Sequence[Call], times: int) -> Call:
        """Replays so many rounds of calls; RuntimeError where a call waits for the device, and cannot be captured."""
        torch.cuda.set_sync_debug_mode("error")  # a capture that fails leaves less in order than a call
        try:
            for call in calls:
                call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            for _ in range(times):
                for call in calls:
                    call()
        finally:
            graph.capture_end()
        return graph.replay

    def busy_seconds(self, call: Call, calls: int = 5) -> float:
        """How long a call keeps the device busy, without the gaps between its kernels."""
        call()
        self.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            timeit.Timer(call).timeit(calls)
            self.synchronize()
        return float(sum(event.device_time_total for event in profile.key_averages())) / calls / 1e6

    def peak_bytes(self, call: Call) -> int:
        """The most that a call has in the device's memory beyond what was there before."""
        self.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated() - before

    def free(self) -> None:
        """Return unused memory to the device, which other processes use as well."""
        if self.is_gpu:
            torch.cuda.empty_cache()
