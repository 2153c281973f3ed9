"""Where in a library's file the ABI number is looked for."""

from __future__ import annotations

import struct

import pytest

from .builder import Site
from .conftest import Run

FOREIGN = struct.pack("<III", 4, 4, 3) + b"GNU\0" + b"\1\2\3\4"
ANOTHER_TYPE = struct.pack("<III", 8, 8, 1) + b"opwheel\0" + bytes(8)  # its owner's, but no number
OWN = struct.pack("<III", 8, 4, 1) + b"opwheel\0" + struct.pack("<i", 9)


def library(*segments: bytes) -> bytes:
    """An ELF file of nothing but notes, each argument a segment."""
    table = 64
    content = table + 56 * len(segments)
    header = (
        b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<Q", table) + bytes(14) + struct.pack("<HH", 56, len(segments))
    )
    entries, data = b"", b""
    for segment in segments:
        entries += struct.pack("<IIQQQQQQ", 4, 4, content + len(data), 0, 0, len(segment), len(segment), 4)
        data += segment
    return header.ljust(table, b"\0") + entries + data


@pytest.mark.parametrize(
    "segments",
    [(OWN,), (FOREIGN + OWN,), (ANOTHER_TYPE + OWN,), (FOREIGN, OWN), (FOREIGN, FOREIGN + ANOTHER_TYPE + OWN)],
    ids=["alone", "behind another", "behind another of the same owner", "in another segment", "behind all of these"],
)
def test_found(segments: tuple[bytes, ...], site: Site, run: Run) -> None:
    site.install("acme", library=library(*segments))
    status = run(site.root)["statuses"]["acme"]
    assert (status["state"], status["code"]) == ("incompatible", "OPWHEEL-E030")
    assert "ABI 9, this core has ABI 1" in status["reason"]
