"""Turns the conformance kit's matrix into docs/coverage.md, or checks that the page still says what the matrix does.

python docs/coverage.py matrix.json            # write the page
python docs/coverage.py --check matrix.json    # exit code 1 if the page is stale or a cell is not green
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("coverage.md")
MARKS = {"passed": "ok", "failed": "**FAIL**"}
KIT = "conformance-kit.md#what-it-tests"
HEAD = """# What is tested

What the conformance kit found on the CPU backend, by
`pytest --pyargs opwheel_tools.testing --library muladd --backend cpu --matrix matrix.json`.
The first column links to what is tested. Empty: does not apply to that variant.

"""


def cells(matrix: dict[str, Any]) -> dict[tuple[str, str], str]:
    """The worst outcome of each operator under each subsystem, over all dtypes."""
    order = ["skipped", "passed", "failed"]
    worst: dict[tuple[str, str], str] = {}
    for row in matrix["results"]:
        key = (row["operator"], row["subsystem"])
        worst[key] = max(worst.get(key, "skipped"), row["outcome"], key=order.index)
    return worst


def page(matrix: dict[str, Any]) -> str:
    """The page's text."""
    worst = cells(matrix)
    operators = sorted({operator for operator, _ in worst})
    lines = ["| |" + "|".join(f"`{operator}`" for operator in operators) + "|", "|---" * (len(operators) + 1) + "|"]
    for subsystem in matrix["subsystems"]:
        row = [MARKS.get(worst.get((operator, subsystem), ""), "") for operator in operators]
        if any(row):
            lines.append(f"|[{subsystem}]({KIT})|" + "|".join(row) + "|")
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("matrix", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = page(json.loads(options.matrix.read_text()))
    if not options.check:
        PAGE.write_text(text)
    elif "FAIL" in text or text != PAGE.read_text():
        print(f"{PAGE} is stale: python docs/coverage.py {options.matrix}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
