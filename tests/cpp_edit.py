"""Edits C++ sources for tests of the tests: by tokens, so that neither formatting nor comments matter.

A pattern that does not match exactly once is an error which says so, with the places where it does match. Names may
change: whoever renames one finds every pattern that has it in seconds (tests/unit/test_mutations.py).
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<space>\s+|\\\n|//[^\n]*|/\*.*?\*/)"
    r'|(?P<token>R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\d[\w.\']*|\'(?:\\.|[^\'\\\n])*\'|\w+|[^\s\w])',
    re.DOTALL,
)


class _Token(NamedTuple):
    text: str
    start: int
    end: int


def replace(source: str, old: str, new: str, *, within: str = "") -> str:
    """The source with ``new`` in the place of the tokens ``old``, which it has exactly once.

    With ``within``, the head of a function or a class ("struct Mul"), once in the braces that follow it.

    Raises:
        ValueError: if there are none or several.
    """
    tokens = _tokens(source)
    if within:
        head = _once(tokens, within, source)
        tokens = _braces(tokens, head + len(_tokens(within)))
    first = _once(tokens, old, source, within)
    last = first + len(_tokens(old)) - 1
    return source[: tokens[first].start] + new + source[tokens[last].end :]


@functools.cache
def _tokens(source: str) -> list[_Token]:
    return [_Token(match[0], match.start(), match.end()) for match in _TOKEN.finditer(source) if match["token"]]


def _once(tokens: list[_Token], pattern: str, source: str, within: str = "") -> int:
    wanted = [token.text for token in _tokens(pattern)]
    texts = [token.text for token in tokens]
    found = [i for i in range(len(texts) - len(wanted) + 1) if texts[i : i + len(wanted)] == wanted]
    if len(found) != 1:
        lines = [source.count("\n", 0, tokens[i].start) + 1 for i in found]
        where = f" within {within!r}" if within else ""
        raise ValueError(f"{pattern!r} is there {len(found)} times{where}, not once (lines {lines})")
    return found[0]


def _braces(tokens: list[_Token], start: int) -> list[_Token]:
    """The first block after ``start``, with its braces."""
    first = next(i for i in range(start, len(tokens)) if tokens[i].text == "{")
    depth = 0
    for i in range(first, len(tokens)):
        depth += {"{": 1, "}": -1}.get(tokens[i].text, 0)
        if depth == 0:
            return tokens[first : i + 1]
    raise ValueError("a brace is not closed")
