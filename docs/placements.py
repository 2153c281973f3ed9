"""Writes docs/placements.md: on which parts of their arguments the operators of both libraries compute, by their rules.

python docs/placements.py            # after placements.json, a claim or a sharded reduction has changed
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import muladd
import transformer_ops
from opwheel.dispatch.placements import PlacementRule, parse, placement_rules

PAGE = Path(__file__).with_name("placements.md")
HEAD = """# More than one machine

On DTensors these operators compute on the parts that each process has, where that gives the right result, and else on
whole tensors, which DTensor gathers first. The table says what those parts are. Its lines follow from what an
operator's declaration claims, or have been found by evaluating its reference on parts of its samples; PyTorch's own
validator of sharding rules finds none of those wrong that return their results.

`R` is whole on every process, `S(1)` sharded along dimension 1, `S(:-1)` along any dimension but the last, `S(:)` along
any, `S(...)` along any as operands broadcast, and `P` a sum over the processes, `Partial("sum")`. Tensors that are not
named are whole. A line with \\* is for some calls, such as those without a mask: `placements.json` in the library's
package has the conditions. [Writing an operator](writing-an-operator.md#on-several-processes) says how lines are found.

A sharded reduction exchanges a few numbers of each row in the place of gathering the dimension that it reduces:
[which ones](transformer.md#on-several-processes).

| operator | on parts | of sums over processes | sharded reduction |
|---|---|---|---|
"""
LIBRARIES = (muladd.library, transformer_ops.library)


def page() -> str:
    """The page's text."""
    return HEAD + "".join(_row(library, name) for library in LIBRARIES for name in sorted(library.overloads))


def _row(library: Any, name: str) -> str:
    """A line of the table; none for variants, and for what computes on whole tensors alone."""
    overload = library.overloads[name]
    rules = placement_rules(overload, library)
    reduction = overload.operator.sharded
    if name != overload.operator.name or not (rules or reduction):
        return ""
    on_parts = [rule for rule in rules if any(one.startswith("S") for one in rule.arguments.values())]
    sums = [rule for rule in rules if rule not in on_parts and "P(sum)" in rule.arguments.values()]
    reductions = [parse(reduction.placements)] if reduction is not None else []
    return f"| `{name}` | {_cell(on_parts)} | {_cell(sums)} | {_cell(reductions)} |\n"


def _cell(rules: Iterable[PlacementRule]) -> str:
    """The rules without their conditions, each of them once; of sums and means over processes the sums."""
    conditional: dict[str, bool] = {}
    for rule in rules:
        if "P(avg)" in (*rule.arguments.values(), *rule.results):
            continue
        text = str(rule._replace(conditions={})).replace("P(sum)", "P")
        conditional[text] = conditional.get(text, True) and bool(rule.conditions)
    return "<br>".join(f"`{text}`" + r" \*" * is_some for text, is_some in conditional.items())


if __name__ == "__main__":
    PAGE.write_text(page())
