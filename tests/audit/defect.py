"""A defect: one line of the right library, changed."""

from __future__ import annotations

from typing import NamedTuple


class Defect(NamedTuple):
    """A line of twin.py and what stands in its place.

    Args:
        name: of the defect.
        operator: that has it.
        source: a public report of such a defect.
        right: a part of the line.
        wrong: in the place of that part.
        check: that has to find it; any where it is empty.
        where: what the finding's message has to begin with.
    """

    name: str
    operator: str
    source: str
    right: str
    wrong: str
    check: str = ""
    where: str = ""
