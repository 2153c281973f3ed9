"""Whether multiples of strides add up to a distance; as ``opwheel/detail/stride_sums.h`` in the C++ SDK."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


class _Term(NamedTuple):
    step: int
    most: int  # times that it is taken
    reach: int  # of this step and all shorter ones
    divisor: int


_NONE = _Term(0, 0, 0, 0)


class StrideSums:
    """The sums of ``n * step`` over all steps, with ``0 <= n <= count`` for each.

    Whether a distance is one of them is decided depth first, the longest step first: of its multiples only those are
    tried that leave something between 0 and the sum of all shorter steps, and a multiple of their greatest common
    divisor. That is exact, and takes a few tries for the strides of views; in general the problem is NP-hard (a bounded
    linear Diophantine equation), so that after 10,000 tries the distance counts as one that is reached.

    Args:
        steps: pairs of a step, which is not negative, and a count.
    """

    def __init__(self, steps: Iterable[tuple[int, int]]) -> None:
        self._tries = 10_000
        self._terms = [_NONE]  # the longest step first
        for step, count in _merged(steps):
            shorter = self._terms[0]
            self._terms.insert(0, _Term(step, count, step * count + shorter.reach, math.gcd(step, shorter.divisor)))

    def may_reach(self, distance: int) -> bool:
        """Whether the distance is one of the sums, or too many tries would be needed to tell."""
        longest = self._terms[0]
        if not 0 <= distance <= longest.reach:
            return False
        return longest is _NONE or (distance % longest.divisor == 0 and self._may_reach(0, distance))

    def _may_reach(self, i: int, distance: int) -> bool:
        """Of a distance that is within reach of the terms from ``i`` on, and a multiple of their divisor."""
        term, shorter = self._terms[i : i + 2]
        if shorter is _NONE:
            return True
        least = -(-max(distance - shorter.reach, 0) // term.step)
        most = min(term.most, distance // term.step)
        # Every period-th multiple leaves a multiple of the shorter steps' divisor.
        period = shorter.divisor // term.divisor
        left = distance // term.divisor - least * (term.step // term.divisor)
        first = least + left * pow(term.step // term.divisor, -1, period) % period
        for n in range(first, most + 1, period):
            self._tries -= 1
            if self._tries < 0 or self._may_reach(i + 1, distance - n * term.step):
                return True
        return False


def _merged(steps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The steps in ascending order, without those that lead nowhere.

    One that is a multiple of a shorter one, and leads no further than that does and once more, is the shorter one more
    often: dimensions without gaps between them become one.
    """
    merged: list[tuple[int, int]] = []
    for step, count in sorted((step, count) for step, count in steps if step > 0 and count > 0):
        if merged:
            shorter, shorter_count = merged[-1]
            if step % shorter == 0 and step // shorter <= shorter_count + 1:
                merged[-1] = shorter, shorter_count + step // shorter * count
                continue
        merged.append((step, count))
    return merged
