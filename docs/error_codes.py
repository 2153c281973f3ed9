"""Writes docs/error-codes.md from the table of codes: `python docs/error_codes.py`. A test checks it."""

from __future__ import annotations

from pathlib import Path

from opwheel.registry import ERROR_CODES

PAGE = Path(__file__).with_name("error-codes.md")
INTRODUCTION = (
    "The same for every operator library. `<library>` stands for its name, such as muladd, and `<LIBRARY>` for the "
    "name in capitals. Every exception class of opwheel, opwheel-tools and muladd has its code as the attribute "
    "`code`, also where its text does not end with it."
)


def page() -> str:
    """The page's text."""
    rows = "".join(f"| {row.id} | {row.title} | {row.cause} | {row.fix} |\n" for row in ERROR_CODES.values())
    return f"# Error codes\n\n{INTRODUCTION}\n\n| code | what | cause | fix |\n|---|---|---|---|\n{rows}"


if __name__ == "__main__":
    PAGE.write_text(page())
