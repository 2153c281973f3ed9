"""What a run leaves allocated: what comes and goes is no leak, what is kept each time is."""

from __future__ import annotations

from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opwheel.memory.usage import kept_by

TOLERATED = 1599
RUNS = 10


def measured(left: list[int]) -> tuple[int | None, int]:
    """What ``kept_by`` says of runs that leave these bytes, the last one's ever after; and how many runs it made."""
    total, made = 0, 0
    leaves = chain(left, repeat(left[-1]))

    def work() -> None:
        nonlocal total, made
        total += next(leaves)
        made += 1

    return kept_by(work, TOLERATED, lambda: total), made


@given(st.lists(st.integers(TOLERATED + 1, 10_000), max_size=RUNS - 1), st.integers(-10_000, TOLERATED))
def test_the_first_quiet_run_is_the_last(noise: list[int], quiet: int) -> None:
    assert measured([*noise, quiet]) == (quiet, len(noise) + 1)


@given(st.lists(st.integers(TOLERATED + 1, 10_000), min_size=RUNS, max_size=RUNS))
def test_what_every_run_leaves_is_kept(left: list[int]) -> None:
    assert measured(left) == (min(left), RUNS)


@pytest.mark.parametrize("calls", [100, 1000])
def test_memory_that_is_kept_is_seen(calls: int) -> None:
    kept: list[bytearray] = []

    def work() -> None:
        kept.extend(bytearray(1000) for _ in range(calls))

    left = kept_by(work, 16 * calls - 1)
    assert left is not None
    assert left >= 800 * calls  # what else is freed meanwhile counts as well
