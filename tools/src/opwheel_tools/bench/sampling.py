"""Times statements side by side, so that whatever disturbs the machine disturbs all of them alike."""

from __future__ import annotations

import math
import random
import statistics
import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
    """A sample repeats its statement until it takes this long."""
    settle_seconds: float = 6e-3
    """So long the statement runs before a sample, without being counted."""
    rounds: tuple[int, int] = (7, 1000)

    def for_one_of(self, runs: int, *, is_first: bool) -> Precision:
        """For each of so many runs whose samples are put together; the first has as many rounds as if it were alone."""
        fewest, most = (-(-number // runs) for number in self.rounds)
        rounds = self.rounds if is_first else (max(2, fewest), max(2, most))
        return replace(self, error=self.error * math.sqrt(runs), seconds=self.seconds / runs, rounds=rounds)


FULL = Precision(error=0.005, seconds=4.0)
QUICK = Precision(error=0.05, seconds=0.05, settle_seconds=0.0, rounds=(5, 50))


@dataclass(frozen=True)
class Samples:
    """Seconds for one call, in the order of measurement, and how many calls a sample is the mean of."""

    seconds: list[float]
    calls: int

    def __add__(self, others: Samples) -> Samples:
        """Those of both; the calls are those of the first."""
        return Samples(self.seconds + others.seconds, self.calls)

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
    calls = {name: _calls(timer, clock, precision) for name, timer in timers.items()}
    samples = {name: Samples([], number) for name, number in calls.items()}
    order, shuffle, spent = list(timers), random.Random(0).shuffle, 0.0  # noqa: S311  # no secret
    for done in range(1, most + 1):
        shuffle(order)
        for name in order:
            spent += _settle(timers[name], clock, samples[name], precision)
            seconds = clock(timers[name], calls[name])
            samples[name].seconds.append(seconds / calls[name])
            spent += seconds
        if done >= fewest and (spent > precision.seconds or _all_precise(samples, precision)):
            break
    return samples


def _settle(timer: Timer, clock: Clock, samples: Samples, precision: Precision) -> float:
    """Run for a while, at least once, before a sample, and return the seconds that it takes.

    The first calls find in the caches what the statement before has left there, and threads that slept meanwhile: what
    is fast for its own sake would be charged for the habits of others. Next to a statement that takes long that is
    little.
    """
    one = samples.seconds[-1] if samples.seconds else precision.sample_seconds / samples.calls
    if one > 10 * precision.sample_seconds:
        return 0.0
    return clock(timer, max(1, round(precision.settle_seconds / max(one, 1e-7))))


def _all_precise(samples: dict[str, Samples], precision: Precision) -> bool:
    return all(one.error() <= precision.error for one in samples.values())


def _calls(timer: Timer, clock: Clock, precision: Precision) -> int:
    """How many calls take long enough; finding out also warms caches and allocators up."""
    calls = 1
    clock(timer, calls)
    while (seconds := min(clock(timer, calls) for _ in range(3))) < precision.sample_seconds:
        calls = max(2 * calls, min(100 * calls, math.ceil(calls * precision.sample_seconds / max(seconds, 1e-9))))
    return calls


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
