"""Times statements side by side, so that whatever disturbs the machine disturbs all of them alike."""

from __future__ import annotations

import math
import random
import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch


class Timer(Protocol):
    """A statement, as timeit.Timer has it."""

    def timeit(self, number: int) -> float:
        """Seconds that so many runs take."""
        ...


Clock = Callable[[Timer, int], float]
"""Seconds that a number of runs take."""


@dataclass(frozen=True)
class Precision:
    """When enough is measured."""

    error: float
    """Wanted standard error of each median, relative to it."""
    seconds: float
    """A case ends after this long, however noisy."""
    sample_seconds: float = 2e-3
    """Samples repeat their statements so often that the fastest takes this long."""
    rounds: tuple[int, int] = (7, 1000)


FULL = Precision(error=0.005, seconds=4.0)
QUICK = Precision(error=0.05, seconds=0.05, rounds=(5, 50))


@dataclass(frozen=True)
class Samples:
    """Seconds for one call, in the order of measurement, and how many calls a sample is the mean of."""

    seconds: list[float]
    calls: int

    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median, upper quartile."""
        lower, median, upper = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return lower, median, upper

    def error(self) -> float:
        """Standard error of the median, estimated from the quartiles, relative to the median."""
        lower, median, upper = self.quartiles()
        # 1.35 quartile distances are a standard deviation; the median of normal samples spreads 1.25 times their mean.
        return 1.25 * (upper - lower) / 1.35 / math.sqrt(len(self.seconds)) / median


def clock_for(device: str) -> Clock:
    """The host's clock, or the device's own where it has one."""
    if device == "cpu":
        return _host_seconds
    try:
        clock = _event_clock(device)
        clock(timeit.Timer("pass"), 1)
    except (RuntimeError, NotImplementedError, ValueError):
        return _synchronizing_clock(device)
    return clock


def sample(timers: Mapping[str, Timer], clock: Clock, precision: Precision) -> dict[str, Samples]:
    """Rounds in which each statement has one turn, in an order of its own, until all medians are precise enough."""
    fewest, most = precision.rounds
    calls = _calls(timers.values(), clock, precision)
    samples = {name: Samples([], calls) for name in timers}
    order, shuffle, spent = list(timers), random.Random(0).shuffle, 0.0  # noqa: S311  # no secret
    for done in range(1, most + 1):
        shuffle(order)
        for name in order:
            seconds = clock(timers[name], calls)
            samples[name].seconds.append(seconds / calls)
            spent += seconds
        if done >= fewest and (spent > precision.seconds or _all_precise(samples, precision)):
            break
    return samples


def _all_precise(samples: dict[str, Samples], precision: Precision) -> bool:
    return all(one.error() <= precision.error for one in samples.values())


def _calls(timers: Iterable[Timer], clock: Clock, precision: Precision) -> int:
    """How many calls a sample of each has, such that the fastest takes long enough and all rounds fit into the time.

    The same number for all: the first call finds in the caches what the statement before has left there, and a mean of
    few calls has more of it.
    """
    found = [_calls_of(timer, clock, precision) for timer in timers]
    seconds_for_one_of_each = sum(seconds for _, seconds in found)
    affordable = precision.seconds / precision.rounds[0] / max(seconds_for_one_of_each, 1e-9)
    return max(1, min(max(calls for calls, _ in found), int(affordable)))


def _calls_of(timer: Timer, clock: Clock, precision: Precision) -> tuple[int, float]:
    """How many calls take long enough, and how long one takes; finding out also warms caches and allocators up."""
    calls = 1
    clock(timer, calls)
    while (seconds := min(clock(timer, calls) for _ in range(3))) < precision.sample_seconds:
        calls = max(2 * calls, min(100 * calls, math.ceil(calls * precision.sample_seconds / max(seconds, 1e-9))))
    return calls, seconds / calls


def _host_seconds(timer: Timer, calls: int) -> float:
    return timer.timeit(calls)


def _synchronizing_clock(device: str) -> Clock:
    synchronize = torch.get_device_module(device).synchronize

    def seconds(timer: Timer, calls: int) -> float:
        synchronize()
        start = time.perf_counter()
        timer.timeit(calls)
        synchronize()
        return time.perf_counter() - start

    return seconds


def _event_clock(device: str) -> Clock:
    start, end = (torch.Event(device, enable_timing=True) for _ in range(2))

    def seconds(timer: Timer, calls: int) -> float:
        start.record()
        timer.timeit(calls)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return seconds
