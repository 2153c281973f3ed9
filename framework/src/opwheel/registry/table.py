"""The installed backends as a mapping that prints as a table."""

from __future__ import annotations

from collections.abc import Iterator

from ..text import printable
from .status import BackendStatus

_HEADINGS = ("backend", "state", "key", "distribution", "operators", "reason")


class Backends(dict[str, BackendStatus]):
    """Each installed backend's status by its name; in a terminal and in a notebook it is shown as a table."""

    def __repr__(self) -> str:
        rows = [_HEADINGS, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines if self else ["no backend is installed"])

    def _repr_html_(self) -> str:
        rows = [_html_row("th", _HEADINGS), *(_html_row("td", row) for row in self._rows())]
        return f"<table>{''.join(rows)}</table>" if self else "<p>no backend is installed</p>"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for name, status in self.items():
            origin = f"{status.distribution} {status.version}"
            reason = " ".join(status.reason.split())
            row = name, str(status.state), status.dispatch_key, origin, str(len(status.operators)), reason
            yield tuple(map(printable, row))


def _html_row(tag: str, cells: tuple[str, ...]) -> str:
    from html import escape  # not at the top: it takes a millisecond, and every import of a library would pay

    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
