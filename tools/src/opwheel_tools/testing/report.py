"""What is wrong, on one screen: failures grouped by operator and subsystem, with the assertion and a hint."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_GROUPS = 12  # of failures that are shown in full
_LINES = 8  # of an assertion
LEFT_OUT = "left out"
"""The name of the properties by which a test says what it has left out."""


class Outcome(NamedTuple):
    """One test of one overload.

    Args:
        operator: its name, with the overload.
        subsystem: what the test is about.
        dtype: such as ``"float32"``; empty if the test has none.
        layout: such as ``"transposed"``; empty if the test has none.
        outcome: ``"passed"``, ``"failed"`` or ``"skipped"``.
        message: the assertion, where it failed.
        left_out: inputs that the kit made and the test did not try, or why it tried nothing.
    """

    operator: str
    subsystem: str
    dtype: str
    layout: str
    outcome: str
    message: str = ""
    left_out: tuple[str, ...] = ()


def lines(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """The report; nothing where nothing has failed."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[one.operator, one.subsystem].append(one)
    failed = {key: [one for one in group if one.outcome == "failed"] for key, group in groups.items()}
    failed = {key: group for key, group in failed.items() if group}
    for key, group in list(failed.items())[:_GROUPS]:
        operator, subsystem = key
        tried = sum(one.outcome != "skipped" for one in groups[key])
        yield f"{operator}: {subsystem}: {len(group)} of {tried} failed{_where(group)}"
        text = group[0].message.splitlines()
        yield from (f"    {line}" for line in text[:_LINES])
        if len(text) > _LINES:
            yield f"    ... {len(text) - _LINES} more lines: -k and --tb=short show them"
        hint = hint_for(groups[key])
        if hint:
            yield f"    hint: {hint}"
    if len(failed) > _GROUPS:
        rest = Counter(operator for operator, _ in list(failed)[_GROUPS:])
        yield f"and more of {', '.join(f'{operator} ({count})' for operator, count in rest.items())}"


def left_out_lines(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """What was not tried of each operator and subsystem: how often, and the first reason; nothing where all was."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in outcomes:
        groups[one.operator, one.subsystem].extend(one.left_out)
    for (operator, subsystem), reasons in groups.items():
        if reasons:
            yield f"{operator}: {subsystem}: {len(reasons)} left out, such as: {reasons[0]}"


def _where(group: list[Outcome]) -> str:
    parts = [sorted({getattr(one, name) for one in group} - {""}) for name in ("dtype", "layout")]
    shown = "; ".join(", ".join(part) for part in parts if part)
    return f" ({shown})" if shown else ""


def hint_for(group: list[Outcome]) -> str:
    """Where to look first, if the pattern of what passes and fails says so."""

    def states(name: str) -> tuple[set[str], set[str]]:
        failed = {getattr(one, name) for one in group if one.outcome == "failed"} - {""}
        passed = {getattr(one, name) for one in group if one.outcome == "passed"} - {""}
        return failed, passed - failed

    failed, passed = states("layout")
    messages = " ".join(one.message for one in group if one.outcome == "failed")
    if "contiguous" in passed and failed:
        return "all contiguous cases pass, others fail: look at strides and storage offsets"
    failed, passed = states("dtype")
    low = {"float16", "bfloat16"}
    if failed and failed <= low and passed - low and "not close" in messages:
        return f"{' and '.join(sorted(failed))} alone: rounding; compute in float32 and round once at the end"
    if failed == {"float64"} and passed:
        return "float64 alone: a constant or an intermediate result is a float"
    if "nan" in messages.lower() and "Mismatched elements" in messages:
        return "nan where the reference has numbers: memory that was not written, or read beyond the argument"
    if "killed by" in messages:
        return "run it under a debugger, or with the library built with -fsanitize=address"
    return ""
