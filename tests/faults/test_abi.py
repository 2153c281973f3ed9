"""Where in a library's file the ABI number and the schemas are looked for."""

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


def schema(text: str, kind: int = 2) -> bytes:
    """A note with what an operator was when the library was built; with kind 3, one that its kernels call."""
    value = text.encode() + b"\0"
    return struct.pack("<III", 8, len(value), kind) + b"opwheel\0" + value.ljust(-(-len(value) // 4) * 4, b"\0")


THIS_ABI = struct.pack("<III", 8, 4, 1) + b"opwheel\0" + struct.pack("<i", 1)
HERE = "muladd(Tensor a, Tensor b, float c) -> Tensor"


@pytest.mark.parametrize(
    "built_for",
    [
        HERE.replace("float", "int"),
        HERE.replace("a, Tensor b", "b, Tensor a"),
        HERE.replace("Tensor a", "Tensor(a!) a"),
        HERE.replace("-> Tensor", "-> (Tensor, Tensor)"),
        HERE.replace(", float c", ""),
    ],
)
def test_other_schemas(built_for: str, site: Site, run: Run) -> None:
    """Of all operators that are claimed; where there are others, test_grown_schemas.py."""
    site.install("acme", library=library(THIS_ABI + schema(built_for)), operators="('muladd',)")
    status = run(site.root)["statuses"]["acme"]
    assert (status["state"], status["code"]) == ("incompatible", "OPWHEEL-E032")
    assert f"was built for {built_for!r}, this core has {HERE!r}" in status["reason"]


@pytest.mark.parametrize(
    ("built_for", "operators"),
    [
        (HERE, "None"),
        (HERE.replace("float c", "float c=0.5"), "None"),
        (HERE.replace(", ", ",  "), "None"),
        (HERE.replace("float c", "*, float c"), "None"),
        (HERE.replace("float", "int"), "('mul',)"),
        ("gone(Tensor a) -> Tensor", "None"),
    ],
    ids=["the same", "another default", "other spaces", "keyword-only", "not claimed", "no operator any more"],
)
def test_schemas_that_make_no_difference(built_for: str, operators: str, site: Site, run: Run) -> None:
    site.install("acme", library=library(THIS_ABI + schema(built_for)), operators=operators)
    assert run(site.root)["statuses"]["acme"]["code"] == "OPWHEEL-E050"  # nothing but notes: it cannot be opened


@pytest.mark.parametrize(
    ("called", "words"),
    [
        ("muladd::muladd(Tensor a, Tensor b, int c) -> Tensor", "'c' is of another type"),
        ("muladd::muladd(Tensor a, Tensor b) -> Tensor", "the call has no 'c', which has no default"),
        ("muladd::muladd(Tensor a, Tensor b, float c, float d) -> Tensor", "it has no argument 'd'"),
        ("muladd::muladd(Tensor a, Tensor b, float c) -> (Tensor, Tensor)", "the results are others"),
        ("aten::mm(Tensor(a!) self, Tensor mat2) -> Tensor", "'self' is of another type"),
        ("aten::add.Tensor(Tensor self, Tensor other) -> Tensor", "the call has no 'alpha'"),
    ],
)
def test_kernels_call_operators_that_are_others_here(called: str, words: str, site: Site, run: Run) -> None:
    site.install("acme", library=library(THIS_ABI + schema(called, 3)), operators="('mul',)")
    status = run(site.root)["statuses"]["acme"]
    assert (status["state"], status["code"]) == ("incompatible", "OPWHEEL-E032")
    assert f"calls {called!r}, which does not fit the operator in this process" in status["reason"]
    assert words in status["reason"]


@pytest.mark.parametrize(
    "called",
    [
        "muladd::" + HERE,
        "muladd::muladd(Tensor b, float c, Tensor a) -> Tensor",
        "aten::topk(Tensor self, int k) -> (Tensor, Tensor)",
        "aten::alias(Tensor self) -> Tensor",
        "stranger::gone(Tensor a) -> Tensor",
    ],
    ids=["the same", "another order", "without arguments that have defaults", "a view", "not defined, or not yet"],
)
def test_kernels_call_operators_that_are_as_they_were(called: str, site: Site, run: Run) -> None:
    site.install("acme", library=library(THIS_ABI + schema(called, 3)))
    assert run(site.root)["statuses"]["acme"]["code"] == "OPWHEEL-E050"  # nothing but notes: it cannot be opened
