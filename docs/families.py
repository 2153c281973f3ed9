"""Writes docs/transformer-families.md: what transformer_ops.patch replaces in each causal family of transformers.

python docs/families.py      # from libraries/transformer/tests/families/families.json, a record of the nightly tests
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RECORD = DOCS.parent / "libraries/transformer/tests/families/families.json"
PAGE = DOCS / "transformer-families.md"
OPERATORS = (
    "fused_linear_cross_entropy",
    "cross_entropy",
    "rms_norm",
    "layer_norm",
    "swiglu",
    "geglu",
    "rope",
    "attention",
)

INTRODUCTION = """\
What [`transformer_ops.patch`](transformer.md#hugging-faces-models) replaces in the {count} causal families of
transformers {release}: in a small random model of each, how many modules call each operator. Loss, logits
and all gradients were compared with those of the model as it was, in float64: they are the same up to the rounding of
float32, in which most models compute norms and losses. Other models of the same code, as of newer families, get it."""
NOT_COMPARED = """\
Not compared, as no small model of them was built that computes a loss of tokens alone (what is known is replaced):
"""


def page(record: dict[str, Any]) -> str:
    """The page of a record."""
    families = sorted(record["families"].values(), key=lambda one: one["family"])
    of_state = {
        state: [one for one in families if one["state"] == state]
        for state in ("replaced", "nothing replaced", "not run")
    }
    heads = [f"`{name}`" for name in OPERATORS]
    lines = [
        "# Families of models",
        "",
        "<!-- docs/families.py writes this page -->",
        "",
        *INTRODUCTION.format(count=len(families), release=record["transformers"]).splitlines(),
        "",
        f"| family | {' | '.join(heads)} |",
        f"|---|{'---|' * len(OPERATORS)}",
    ]
    for one in of_state["replaced"]:
        numbers = (str(one["replaced"].get(name, "")) for name in OPERATORS)
        lines.append(f"| {one['family']} | {' | '.join(numbers)} |")
    refused, left_out = (", ".join(one["family"] for one in of_state[name]) for name in ("nothing replaced", "not run"))
    lines += [
        "",
        f"Nothing is replaced in these, and `patch()` refuses them: {refused}.",
        "",
        f"{NOT_COMPARED}{left_out}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RECORD.read_text())))
