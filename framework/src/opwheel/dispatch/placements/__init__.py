"""Placements: which parts of its arguments an operator may be given on each process, and what it gives of the results.

Read in this order: :mod:`.notation` (a rule, as text), :mod:`.rules` (those of an overload: claimed, given by hand, and
found by tests), :mod:`.matching` (what they say of one call). :mod:`..sharding` hands it to DTensor.
"""

from .matching import Placed, holds, placed
from .notation import PlacementRule, parse
from .rules import FILE, checked, checked_reduction, placement_rules

__all__ = [
    "FILE",
    "Placed",
    "PlacementRule",
    "checked",
    "checked_reduction",
    "holds",
    "parse",
    "placed",
    "placement_rules",
]
