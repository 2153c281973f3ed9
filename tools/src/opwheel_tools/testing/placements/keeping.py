"""The file in a library's wheel that has the placement rules which its tests have found."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from opwheel.dispatch import Library
from opwheel.dispatch.overload import Overload
from opwheel.dispatch.placements import FILE

from ..checks.cases import declared, wide_dtype
from .generalising import find_rules

_CPU = torch.device("cpu")


def found_rules(library: Library, names: Iterable[str] | None = None) -> dict[str, list[str]]:
    """The rules of a library's operators, found anew, by name; operators without any are left out.

    Args:
        library: whose operators have samples.
        names: of the operators to look at; None: of all of them.
    """
    wanted = set(library.overloads if names is None else names)
    found = {
        name: sorted(map(str, find_rules(overload)))
        for name, overload in library.overloads.items()
        if name in wanted and _is_looked_at(overload)
    }
    return {name: rules for name, rules in sorted(found.items()) if rules}


def write_rules(library: Library, folder: Path) -> Path:
    """Write them into the file that the library's wheel has, in the folder of its package's sources.

    Returns:
        The file.
    """
    file = folder / FILE
    file.write_text(json.dumps(found_rules(library), indent=1) + "\n")
    return file


def _is_looked_at(overload: Overload) -> bool:
    """Whether an overload has rules of its own: variants have those of their operator, and what is random has none."""
    if overload.name != overload.operator.name or overload.name.endswith(".out") or overload.is_random:
        return False
    return bool(
        overload.tensor_positions and not overload.operator.fake and declared(overload, wide_dtype(overload), _CPU)
    )
