"""Which cases and implementations of a suite take part in a run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from .suite import Case, Implementation, Suite

# Of the free memory: the rest is for the checks, the caches of allocators and whoever else is there.
_MEMORY_SHARE = 0.6


def select_cases(suite: Suite, *, device: str, quick: bool, groups: Collection[str], memory: int) -> list[Case]:
    """The cases of the groups (none: of all) that fit into ``memory`` bytes, and the largest one that does."""
    full = suite.full if device == "cpu" else (*suite.on_accelerators, *suite.full)
    chosen = groups or suite.groups
    cases = [case for plan in (suite.quick if quick else full) if plan.group in chosen for case in plan.cases()]
    room = int(memory * _MEMORY_SHARE)
    if not quick and suite.largest is not None and suite.largest.group in chosen:
        elements = room // suite.working_set(replace(suite.largest, elements=1))
        cases.append(replace(suite.largest, elements=2 ** (elements.bit_length() - 1)))
    # The largest may be among the others.
    return [case for case in dict.fromkeys(cases) if suite.working_set(case) <= room]


def select_implementations(suite: Suite, device: str, skip: Collection[str] = ()) -> list[Implementation]:
    """Who takes part on the device: the library first, the limit last."""
    limit = suite.cpu_limit if device == "cpu" else suite.accelerator_limit
    others = [one for one in (*suite.baselines, limit) if one is not None and one.name not in skip]
    return [suite.ours, *others]


def baseline_names(suite: Suite) -> list[str]:
    """Every baseline that can be left out."""
    return [one.name for one in suite.others]
