"""The results in Markdown: times of ours, and those of others over them, so that above 1 ours is faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .document import Document, Run

Row = dict[str, Any]
BASELINES = {"eager": "PyTorch, eager", "compile": "torch.compile", "liger": "Liger-Kernel"}
OF_MULADD = {"addcmul": "`torch.addcmul`", "eager": "`a * b + 2.0`", "compile": "torch.compile"}
NONE = "-"


def training(document: Document) -> str:
    """Operators of transformer_ops in the sizes of training and of reading a prompt."""
    first, *others = document.runs
    names = [*BASELINES.values(), *(f"with `{name}`" for name in others)]
    head = ["operator", "size", "", "microseconds", "the GPU is busy", "of a copy's bandwidth", *names]
    lines, best = _head(head), copy_speed(document)
    for name, row in _rows(document.runs[first], "7B"):
        cells = [f"`{row['operator']}`", _size(row), row["form"], _microseconds(row, "wall")]
        cells += [_microseconds(row, "device"), _share(row, best)]
        cells += [_factor(row, other, "wall") for other in BASELINES]
        cells += [_of_backend(row, document.runs[other].rows.get(name), "wall") for other in others]
        lines.append(_line(cells))
    return "\n".join([*lines, "", measured_on(document), ""])


def decoding(document: Document) -> str:
    """The same for a few tokens: how long the GPU is busy, and how long the host takes to enqueue the call."""
    first, *others = document.runs
    names = [*BASELINES.values(), *(f"with `{name}`" for name in others)]
    lines = _head(["operator", "size", "", "GPU, microseconds", "host, microseconds", *names])
    for name, row in _rows(document.runs[first], "decode"):
        cells = [
            f"`{row['operator']}`",
            _size(row),
            row["form"],
            _microseconds(row, "device"),
            _microseconds(row, "host"),
        ]
        cells += [_both(_factor(row, other, clock) for clock in ("device", "host")) for other in BASELINES]
        for other in others:
            theirs = document.runs[other].rows.get(name)
            cells.append(_both(_of_backend(row, theirs, clock) for clock in ("device", "host")))
        lines.append(_line(cells))
    return "\n".join([*lines, "", measured_on(document), ""])


def muladd(document: Document) -> str:
    """Calls of muladd; of the small ones the host's time."""
    lines = _head(["call", "size", "microseconds", "of a copy's bandwidth", *OF_MULADD.values()])
    best = copy_speed(document)
    for _, row in _rows(next(iter(document.runs.values())), "muladd"):
        clock = "host" if "host" in row["seconds"] else "wall"
        cells = [f"`{row['operator']}`", _size(row), _microseconds(row, clock), _share(row, best)]
        lines.append(_line(cells + [_factor(row, other, clock) for other in OF_MULADD]))
    return "\n".join([*lines, "", measured_on(document), ""])


def measured_on(document: Document) -> str:
    """Machine and versions."""
    machine = document.machine
    where = [str(machine["accelerator"])] if "accelerator" in machine else []
    where += [str(machine["cpu"]), f"{machine['cores']} cores"]
    versions = [f"PyTorch {machine['torch']}", *(f"{name} {version}" for name, version in document.versions.items())]
    copies = f" Copies reach {best / 1e9:.0f} GB/s." if (best := copy_speed(document)) else ""
    return f"Measured on: {', '.join(where)}; {', '.join(versions)}.{copies}"


def copy_speed(document: Document) -> float | None:
    """The best bandwidth of a copy: bytes that it reads and writes in a second.

    Of all sizes: some copies of more than 500 MB take half as long again, and captured into a graph five times as long.
    """
    rows = [row for run in document.runs.values() for row in run.rows.values() if row and row["bytes"]]
    medians = [(row, _median(row, "copy", clock)) for row in rows for clock in ("wall", "device")]
    return max((row["bytes"] / median for row, median in medians if median), default=None)


def _rows(run: Run, group: str) -> Iterator[tuple[str, Row]]:
    """Of a group, those in which ours was measured."""
    for name, row in run.rows.items():
        if row is not None and row["group"] == group and "ours" in row["seconds"]["wall"]:
            yield name, row


def _median(row: Row, name: str, clock: str) -> float | None:
    quartiles = row["seconds"].get(clock, {}).get(name)
    return float(quartiles[1]) or None if quartiles else None


def _microseconds(row: Row, clock: str) -> str:
    median = _median(row, "ours", clock)
    return NONE if median is None else f"{median * 1e6:.3g}" if median < 1e-3 else f"{median * 1e6:.0f}"


def _factor(row: Row, name: str, clock: str) -> str:
    ours, theirs = _median(row, "ours", clock), _median(row, name, clock)
    return NONE if ours is None or theirs is None else f"{theirs / ours:.2f}"


def _of_backend(row: Row, other: Row | None, clock: str) -> str:
    """Another backend's time, as a multiple of eager PyTorch's in its process, over ours as such a multiple."""
    times = [_median(one, name, clock) for one in (row, other or {"seconds": {}}) for name in ("ours", "eager")]
    if None in times:
        return NONE
    ours, eager, theirs, eager_there = (float(one or 0) for one in times)
    return f"{theirs / eager_there * eager / ours:.2f}"


def _share(row: Row, best: float | None) -> str:
    """The bytes that have to be moved, in the time that the device is busy, over the bandwidth of a copy."""
    ours = _median(row, "ours", "device" if "device" in row["seconds"] else "wall")
    is_measured = ours is not None and best is not None and "copy" in row["seconds"]["wall"]
    return f"{row['bytes'] / ours / best:.0%}" if is_measured else NONE


def _both(factors: Iterator[str]) -> str:
    return " / ".join(factors)


def _size(row: Row) -> str:
    return str(row["size"]) if row["dtype"] == "bfloat16" else f"{row['size']}, {row['dtype']}"


def _head(names: list[str]) -> list[str]:
    return [_line(names), f"|{'---|' * len(names)}"]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
