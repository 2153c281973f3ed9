"""What JSON that a command writes says of itself, in the key ``format``: ``{"name": "opwheel lock", "version": 1}``."""

from __future__ import annotations

from typing import Any, NamedTuple


class Format(NamedTuple):
    """The format of a document.

    Args:
        name: of the command that writes it, such as ``"opwheel lock"``.
        version: raised when a key goes or changes its meaning, not when one is added.
    """

    name: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """The value of the key ``format``."""
        return self._asdict()
