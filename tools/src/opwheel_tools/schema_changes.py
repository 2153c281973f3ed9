"""Whether operators have changed so that saved models would fail, or compute something else: a library's own test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any


def breaking_changes(before: Iterable[str], now: Iterable[str]) -> list[str]:
    """What saved models cannot live with: exported, TorchScript, and compiled by AOTInductor.

    An operator may get more arguments, with defaults, behind those that it has. All else changes what a saved call
    means, and PyTorch does not always say so: an argument that was renamed and has a default gets the default.

    Args:
        before: the schemas of a release.
        now: those of this one, ``library.schemas``.

    Returns:
        Each change in words; none if old models are right.
    """
    from opwheel._torch.private import parse_schema  # imports torch, which the build does without

    here = {schema.partition("(")[0]: schema for schema in now}
    found: list[str] = []
    for schema in before:
        name = schema.partition("(")[0]
        if name not in here:
            found.append(f"{name} is gone: keep it, with Operator(deprecated=...)")
            continue
        changes = list(_changes(parse_schema(schema), parse_schema(here[name])))
        if changes:
            found.append(
                f"{name}: {'; '.join(changes)}: leave {schema!r} as it is, and give the new operator a new name"
            )
    return found


def _changes(before: Any, now: Any) -> Iterator[str]:
    for is_keyword in (False, True):
        old, new = ([one for one in schema.arguments if one.kwarg_only == is_keyword] for schema in (before, now))
        if is_keyword:  # found by their names
            new.sort(key=lambda one: ([a.name for a in old] + [one.name]).index(one.name))
        for a, b in zip_longest(old, new):
            if b is None:
                yield f"{a.name!r} is gone from its place"
            elif a is None:
                if not b.has_default_value():
                    yield f"{b.name!r} is new, and has no default"
            elif a.name != b.name:
                yield f"{a.name!r} has become {b.name!r}"
            elif _type(a) != _type(b):
                yield f"{a.name!r} has another type"
            elif (a.has_default_value(), a.default_value) != (b.has_default_value(), b.default_value):
                yield f"{a.name!r} has another default"
    if list(map(_type, before.returns)) != list(map(_type, now.returns)):
        yield "the results are others"


def _type(one: Any) -> tuple[str, bool]:
    return str(one.type), one.alias_info is not None and one.alias_info.is_write
