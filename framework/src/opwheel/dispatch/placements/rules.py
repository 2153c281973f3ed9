"""The placement rules of an overload: those that its rule claims, those given by hand, and those found by tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..rules.rule import refuse
from .notation import PlacementRule, parse

if TYPE_CHECKING:
    from ..overload import Overload

FILE = "placements.json"
"""In a library's package: what its tests have found, as lists of rules by the operators' names."""


def placement_rules(overload: Overload, library: Any) -> tuple[PlacementRule, ...]:
    """Every rule of an overload, but that whole tensors give whole results.

    Args:
        overload: whose rules are asked for.
        library: that it belongs to; one that is a package has the file :data:`FILE`, where its tests have found rules.

    Raises:
        ValueError: a rule does not fit the overload's schema.
    """
    folder = getattr(library, "folder", None)
    operator = overload.operator
    if overload.is_out or overload.is_in_place:
        rules = placement_rules(overload.functional, library) if operator.rule.has_variants else ()
        return tuple(_of_variant(overload, rules))
    found = _found(folder).get(operator.name, ()) if folder is not None else ()
    given = dict.fromkeys((*overload.rule.placements(overload), *operator.placements, *found))
    return tuple(checked(overload, text) for text in given)


def checked(overload: Overload, text: str) -> PlacementRule:
    """The rule that a text stands for.

    Raises:
        ValueError: it is not understood, or names what the overload does not have.
    """
    rule = _parsed(overload, text)
    for placement in (*rule.arguments.values(), *rule.results):
        if placement.startswith("S(-"):
            refuse(overload, f"the placement rule {text!r} has {placement}", "write the dimension, with 'if x.dim=3'")
    return rule


def checked_reduction(overload: Overload) -> PlacementRule:
    """The placements of an overload's sharded reduction.

    Raises:
        ValueError: they are not understood, name what the overload does not have, or say of no one dimension that it
            is sharded; or the overload writes.
    """
    text = overload.operator.sharded.placements
    rule = _parsed(overload, text)
    first = next(iter(rule.arguments.values()), "")
    for placement in (*rule.arguments.values(), *rule.results):
        if ":" in placement or "..." in placement:
            refuse(overload, f"its sharded reduction {text!r} has {placement}", "name the dimension, as in S(-1)")
    if not first.startswith("S"):
        refuse(overload, f"its sharded reduction {text!r} shards nothing", "let the first argument be S(-1)")
    if rule.evenly:
        refuse(overload, f"its sharded reduction {text!r} says 'evenly'", "compute with parts of any size")
    if overload.mutates:
        refuse(overload, "it has a sharded reduction, and writes", "let it return its results")
    if any(str(overload.schema.arguments[i].real_type).startswith("List") for i in overload.tensor_positions):
        refuse(overload, "it has a sharded reduction, and a list of tensors", "let each of them be an argument")
    return rule


def _parsed(overload: Overload, text: str) -> PlacementRule:
    """The rule that a text stands for, with names and results that the overload has."""
    try:
        rule = parse(text)
    except ValueError as error:
        refuse(overload, "its placements", str(error))
    tensors = [overload.names[i] for i in overload.tensor_positions]
    for name in rule.arguments:
        if name not in tensors:
            refuse(overload, f"the placement rule {text!r} names {name!r}", f"name one of {', '.join(tensors)}")
    for condition in rule.conditions:
        name, _, what = condition.partition(".")
        if name not in (tensors if what else overload.names):
            refuse(overload, f"the placement rule {text!r} names {name!r}", f"name one of {', '.join(overload.names)}")
    count = len(overload.schema.returns)
    if len(rule.results) != count:
        refuse(overload, f"the placement rule {text!r} has {len(rule.results)} results", f"write {count} of them")
    return rule


def _of_variant(overload: Overload, rules: Iterable[PlacementRule]) -> Iterable[PlacementRule]:
    """The same of an out or in-place variant: what is written has the result's placement."""
    for rule in rules:
        if overload.is_out:
            yield rule._replace(arguments={**rule.arguments, overload.target: rule.results[0]})
        elif rule.arguments.get(overload.target, "R") == rule.results[0]:
            yield rule


@cache
def _found(folder: Path) -> Mapping[str, list[str]]:
    file = folder / FILE
    if not file.is_file():
        return {}
    found: dict[str, list[str]] = json.loads(file.read_text())
    return found
