"""Puts the table of calls on 4 elements, from the committed results, into docs/benchmarks.md: python docs/calls.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).with_name("benchmarks.md")
RESULTS = Path(__file__).parents[1] / "benchmarks/results/cpu.json"
BEGIN, END = "<!-- calls: made by docs/calls.py -->\n", "<!-- end of calls -->\n"


class Line(NamedTuple):
    """A row of the table: the time of one peer over another's, in one form of call."""

    title: str
    form: str
    peer: str
    over: str


LINES = (
    Line("`muladd.muladd`, no_grad", "no_grad", "muladd", "addcmul"),
    Line("`torch.ops`, no_grad", "no_grad", "torch.ops", "addcmul"),
    Line("forward, inputs require grad", "forward", "muladd", "addcmul"),
    Line("forward and backward", "forward+backward", "muladd", "addcmul"),
    Line("`out=`", "out", "muladd", "addcmul"),
    Line("in place, over `mul_`, which computes less", "in-place", "muladd", "mul_"),
    Line("in `torch.compile`, no_grad", "no_grad", "muladd in compile", "compile"),
)


def table(results: dict[str, Any]) -> str:
    """Medians of the group `overhead`; a dash where they have no such measurement."""
    forms = {row["form"]: row["peers"] for row in results["rows"] if row["group"] == "overhead"}
    lines = ["| a call on 4 elements | µs | over | ratio | custom_op's ratio |", "|---|---|---|---|---|"]
    for line in LINES:
        peers = forms.get(line.form, {})
        median = {name: measured["median_s"] for name, measured in peers.items()}
        time, other = median.get(line.peer), median.get(line.over)
        custom = median.get("custom_op") if line.over == "addcmul" else None
        shown = "-" if time is None else f"{time * 1e6:.2f}"
        lines.append(f"| {line.title} | {shown} | `{line.over}` | {_ratio(time, other)} | {_ratio(custom, other)} |")
    return "\n".join(lines) + "\n"


def _ratio(time: float | None, other: float | None) -> str:
    return "-" if time is None or other is None else f"{time / other:.2f}"


def page() -> str:
    """The page with the table."""
    head, rest = PAGE.read_text().split(BEGIN)
    return head + BEGIN + table(json.loads(RESULTS.read_text())) + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
