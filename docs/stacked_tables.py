"""Tables on narrow screens: one with sentences is shown row by row, each cell below its column's heading.

site.css does so for the class ``stacked``, with the headings from here. A table of numbers stays one and scrolls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

SENTENCE = 20  # characters
NUMBERS = 2 / 3  # of the cells


class Translator(HTML5Translator):
    """Writes the headings into the cells."""

    def starttag(self, node: nodes.Element, *arguments: str, **attributes: str) -> str:
        """A tag, with the heading if the node is a cell that has one."""
        if isinstance(node, nodes.entry) and node.get("heading"):
            attributes["data-heading"] = node["heading"]
        return str(super().starttag(node, *arguments, **attributes))


def has_sentences(table: nodes.table) -> bool:
    """Whether some cell is too long for a column of a narrow screen, and most are no numbers; the rows' names apart."""
    texts = [cell.astext() for row in rows(table) for cell in row.children[1:]]
    numbers = [text for text in texts if re.match(r"\d|-$", text)]
    return len(numbers) < NUMBERS * len(texts) and any(len(text) > SENTENCE for text in texts)


def rows(table: nodes.table) -> Iterator[nodes.row]:
    """Those below the headings."""
    for body in table.findall(nodes.tbody):
        yield from body.findall(nodes.row)


def stack(_: Sphinx, document: nodes.document, __: str) -> None:
    """Mark the tables of a page that have sentences. The first cell of a row needs no heading: it is the row's own."""
    for table in filter(has_sentences, document.findall(nodes.table)):
        table["classes"].append("stacked")
        headings = [entry.astext() for head in table.findall(nodes.thead) for entry in head.findall(nodes.entry)]
        if len(headings) < 3:
            continue
        for row in rows(table):
            for heading, cell in list(zip(headings, row.children, strict=True))[1:]:
                cell["heading"] = heading if cell.astext() else ""


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.set_translator("html", Translator)
    app.connect("doctree-resolved", stack)
