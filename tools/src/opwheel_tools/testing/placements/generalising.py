"""The placement rules that all samples of an operator show.

A way to place a call that is right for one sample is said in words that fit others: "along any dimension but the last"
where it is right for each of them, in tensors of several numbers of dimensions. A rule has a condition for everything
that the samples do not show to be without importance: another value with which the rule is right, too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from opwheel.dispatch.overload import TENSOR_KINDS, Overload
from opwheel.dispatch.placements import PlacementRule
from torch import Tensor

from ..checks.agreement import run_reference
from ..checks.cases import declared, wide_dtype
from .finding import EVEN, Found, find_placements, widened
from .parts import shared_dim
from .simulation import Compute

_FREE = "S(:)"
_MOST_DIMENSIONS = 8


class _Pattern(NamedTuple):
    """Placements of the arguments that are not whole, by position, and of the results."""

    arguments: tuple[tuple[int, str], ...]
    results: tuple[str, ...]
    evenly: bool

    def replaced(self, old: str, new: str) -> _Pattern:
        """The pattern with another placement in the place of one."""
        return _Pattern(
            tuple((i, new if placement == old else placement) for i, placement in self.arguments),
            tuple(new if placement == old else placement for placement in self.results),
            self.evenly,
        )

    @property
    def is_shared(self) -> bool:
        return any(placement.startswith("S") for _, placement in self.arguments)


class _Shown(NamedTuple):
    """What one sample shows: its arguments, and what is right, by the arguments that are not whole."""

    values: tuple[Any, ...]
    right: Mapping[tuple[tuple[int, str], ...], Found]

    def patterns(self) -> Iterator[_Pattern]:
        """What is whole is a mean of equal parts as well: that is not said."""
        for arguments, one in self.right.items():
            plain = [possible[:1] if possible[0] == "R" else possible for possible in one.results]
            for results in itertools.product(*plain):
                yield _Pattern(arguments, results, one.evenly)


_Answer = frozenset[int] | bool | None
"""The positions of the numbers that a pattern needs in a sample; False: it is wrong there; None: it does not apply."""


def find_rules(overload: Overload, compute: Compute = run_reference) -> list[PlacementRule]:
    """The placement rules of an operator, but those of its claim, found from all of its samples.

    Args:
        overload: a functional one, or one that writes.
        compute: how results are computed; by the reference.
    """
    samples = [
        widened(overload, overload.bind(sample.args, sample.kwargs))
        for sample in declared(overload, wide_dtype(overload), torch.device("cpu"))
    ]
    samples = [values for values in samples if all(tensor.numel() for tensor in overload.all_tensors(values))]
    others = {i: _distinct(values[i] for values in samples) for i in range(len(overload.names))}
    indices = {
        i: pool for i in overload.tensor_positions if (pool := _integers(values[i] for values in samples)) is not None
    }
    shown = []
    for values in samples:
        beside = {i: [other for other in each if other != values[i]] for i, each in others.items()}
        found = find_placements(overload, values, beside, indices, compute)
        shown.append(
            _Shown(values, {tuple((i, p) for i, p in one.arguments.items() if p != "R"): one for one in found})
        )
    rules = {str(rule): rule for rule in _rules(overload, shown)}.values()
    claimed = set(overload.rule.placements(overload))
    return [rule for rule in rules if str(rule._replace(conditions={})) not in claimed]


def _distinct(values: Iterable[Any]) -> list[Any]:
    """The different values among these that are neither tensors nor lists of them."""
    found: list[Any] = []
    for value in values:
        if not isinstance(value, (Tensor, list, tuple)) and value not in found:
            found.append(value)
    return found


def _integers(values: Iterable[Any]) -> Tensor | None:
    """Everything that an argument's tensors of integers hold, if it has any."""
    found = [one.flatten() for one in values if isinstance(one, Tensor) and not one.is_floating_point()]
    return torch.cat(found) if found else None


def _rules(overload: Overload, shown: Sequence[_Shown]) -> Iterator[PlacementRule]:
    counts = Counter(pattern for one in shown for pattern in one.patterns())
    every = sorted(counts, key=lambda pattern: -counts[pattern])
    said: set[tuple[int, tuple[tuple[int, str], ...], bool]] = set()
    for pattern in dict.fromkeys(map(_with_free_dimension, every)):
        own = _own_dimensions(pattern, shown) if pattern is not None else None
        if pattern is None or own is None:
            continue
        for dim in range(_MOST_DIMENSIONS):
            one_of_it = pattern.replaced(_FREE, f"S({dim})")
            said |= _where_right(one_of_it, shown)
        rule = _rule(overload, pattern, {i: f"S(:-{count})" for i, count in own.items() if count})
        answers = [_answer_of_free(pattern, own, one) for one in shown]
        yield from _with_conditions(overload, rule, pattern, shown, answers, ranks=False)
    for pattern in every:
        answers = [_answer(pattern, one) for one in shown]
        where = _where_right(pattern, shown)
        if not where <= said:  # of an empty result more than one placement is right
            said |= where
            rule = _rule(overload, pattern, {})
            yield from _with_conditions(overload, rule, pattern, shown, answers, ranks=pattern.is_shared)


def _rule(overload: Overload, pattern: _Pattern, otherwise: Mapping[int, str]) -> PlacementRule:
    named = {overload.names[i]: otherwise.get(i, placement) for i, placement in pattern.arguments}
    return PlacementRule(named, pattern.results, pattern.evenly)


def _with_free_dimension(pattern: _Pattern) -> _Pattern | None:
    """The pattern for any dimension, where the same one is shared out everywhere."""
    shared = {placement for _, placement in pattern.arguments if placement.startswith("S")}
    shared |= {placement for placement in pattern.results if placement.startswith("S")}
    return pattern.replaced(shared.pop(), _FREE) if len(shared) == 1 and pattern.is_shared else None


def _own_dimensions(pattern: _Pattern, shown: Sequence[_Shown]) -> dict[int, int] | None:
    """How many last dimensions of each argument are never shared out, if samples of several ranks agree about it."""
    free = [i for i, placement in pattern.arguments if placement == _FREE]
    limits = [(_limit(pattern, free, one), one) for one in shown]
    owns = {tuple((i, one.values[i].dim() - limit) for i in free) for limit, one in limits if limit is not None}
    if len(owns) != 1 or len({limit for limit, _ in limits if limit}) < 2:
        return None
    return dict(owns.pop())


def _limit(pattern: _Pattern, free: Sequence[int], one: _Shown) -> int | None:
    """How many first dimensions of a sample may be shared out; None where it does not show that."""
    if not all(isinstance(one.values[i], Tensor) for i, _ in pattern.arguments):
        return None
    count: int = min(one.values[i].dim() for i in free)
    for dim in range(count):
        answer = _answer(pattern.replaced(_FREE, f"S({dim})"), one)
        if answer is None or answer is False:
            return None if answer is None else dim
    return count


def _where_right(pattern: _Pattern, shown: Sequence[_Shown]) -> set[tuple[int, tuple[tuple[int, str], ...], bool]]:
    """The samples that a pattern is right for, by their indices, and how it places the arguments of them."""
    right = [k for k, one in enumerate(shown) if isinstance(_answer(pattern, one), frozenset)]
    return {(k, pattern.arguments, pattern.evenly) for k in right}


def _answer_of_free(pattern: _Pattern, own: Mapping[int, int], one: _Shown) -> _Answer:
    if not all(isinstance(one.values[i], Tensor) for i, _ in pattern.arguments):
        return None
    dims = min(one.values[i].dim() - count for i, count in own.items())
    answers = [_answer(pattern.replaced(_FREE, f"S({dim})"), one) for dim in range(dims)]
    if False in answers:
        return False
    needed = [answer for answer in answers if isinstance(answer, frozenset)]
    return frozenset().union(*needed) if needed else None


def _answer(pattern: _Pattern, one: _Shown) -> _Answer:
    sizes = set()
    for i, placement in pattern.arguments:
        if not isinstance(one.values[i], Tensor):
            return None
        dim = shared_dim(placement)
        if dim is not None:
            if dim >= one.values[i].dim():
                return False
            sizes.add(one.values[i].shape[dim])
    if 1 in sizes or (len(sizes) > 1 and not pattern.evenly):
        return None
    found = one.right.get(pattern.arguments)
    if found is not None and (pattern.evenly or not found.evenly):
        is_right = all(mine in possible for mine, possible in zip(pattern.results, found.results, strict=True))
        return found.needed if is_right else False
    if pattern.evenly and not any(all(size % count == 0 for size in sizes) for count in EVEN):
        return None
    return False


def _with_conditions(
    overload: Overload,
    rule: PlacementRule,
    pattern: _Pattern,
    shown: Sequence[_Shown],
    answers: Sequence[_Answer],
    *,
    ranks: bool,
) -> Iterator[PlacementRule]:
    """The rule for as many kinds of calls as the samples show it to be right for."""
    features = [_features(overload, pattern, one, ranks=ranks) for one in shown]
    rights = []
    wrongs = [every for every, answer in zip(features, answers, strict=True) if answer is False]
    for every, answer in zip(features, answers, strict=True):
        if isinstance(answer, frozenset):
            unneeded = {overload.names[i] for i in range(len(overload.names)) if i not in answer}
            fewer = {name: value for name, value in every.items() if name not in unneeded}
            rights.append(every if _meets_any(wrongs, fewer) else fewer)
    made: list[dict[str, Any]] = []
    for seed in rights:
        if any(_meets(seed, conditions) for conditions in made):
            continue
        conditions = seed
        for other in rights:
            same = {name: value for name, value in conditions.items() if other.get(name, _ABSENT) == value}
            is_one = not _meets_any(wrongs, same) and not _is_left_out_or_of_size_1(conditions, other)
            conditions = same if is_one else conditions
        for name in [name for name, value in conditions.items() if value is _LARGE]:
            fewer = {other: value for other, value in conditions.items() if other != name}
            conditions = conditions if _meets_any(wrongs, fewer) else fewer
        made.append(conditions)
        conditions = {name: value for name, value in conditions.items() if not isinstance(value, torch.dtype)}
        is_partial = any(placement.startswith("P") for placement in pattern.results)
        if _LARGE in conditions.values() or (is_partial and conditions != made[-1]):
            continue  # right for some sizes or dtypes alone, which a rule cannot say
        yield rule._replace(conditions=conditions)


class _Mark:
    """In the place of a value."""


_ABSENT, _LARGE = _Mark(), _Mark()


def _features(overload: Overload, pattern: _Pattern, one: _Shown, *, ranks: bool) -> dict[str, Any]:
    """Everything of a call that the rule may depend on."""
    named = {i for i, _ in pattern.arguments}
    found: dict[str, Any] = {}
    for i, (argument, value) in enumerate(zip(overload.schema.arguments, one.values, strict=True)):
        name = argument.name
        if str(argument.real_type) not in TENSOR_KINDS:
            found[name] = list(value) if isinstance(value, (list, tuple)) else value
        elif value is None:
            found[f"{name}.dim"] = None
        elif isinstance(value, Tensor):
            if ranks or i not in named:
                found[f"{name}.dim"] = value.dim()
            if pattern.is_shared and i not in named:
                found |= {f"{name}.size({dim})": 1 if size == 1 else _LARGE for dim, size in enumerate(value.shape)}
    return found


def _is_left_out_or_of_size_1(conditions: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether an optional tensor is left out of one of two kinds of calls, and of size 1 somewhere in the other.

    A tensor with another size there is then in no sample, and no condition that both meet says so.
    """
    for one, another in ((conditions, other), (other, conditions)):
        left_out = tuple(name.removesuffix("dim") + "size(" for name, value in one.items() if value is None)
        if any(name.startswith(left_out) and value == 1 for name, value in another.items()):
            return True
    return False


def _meets(features: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    return all(features.get(name, _ABSENT) == value for name, value in conditions.items())


def _meets_any(features: Sequence[Mapping[str, Any]], conditions: Mapping[str, Any]) -> bool:
    return any(_meets(one, conditions) for one in features)
