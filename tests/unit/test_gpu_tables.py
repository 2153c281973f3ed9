"""Tables of benchmarks.gpu's results."""

import pytest

from benchmarks import summary
from benchmarks.gpu import tables
from benchmarks.gpu.document import Document, Run, load


def row(group, seconds, **changed):
    known = {"operator": "rms_norm", "size": "8 x 4", "group": group, "form": "forward", "dtype": "bfloat16"}
    times = {
        clock: {name: [0.9 * us / 1e6, us / 1e6, us / 1e6] for name, us in us.items()} for clock, us in seconds.items()
    }
    return known | {"seconds": times, "bytes": None, "off": {}, "errors": {}} | changed


@pytest.fixture
def document():
    wall = {"ours": 100, "eager": 150, "compile": 110, "copy": 80}
    first = {
        "a": row("7B", {"wall": wall, "device": {"ours": 90, "copy": 81}}, bytes=324_000_000),
        "b": row("7B", {"wall": {"ours": 2000, "eager": 1000}, "device": {"ours": 0, "eager": 5}}, dtype="float32"),
        "c": row("7B", {"wall": {"eager": 1}}, errors={"ours": "it raised"}),
        "d": None,
        "e": row("decode", {"wall": wall, "device": {"ours": 2, "eager": 4}, "host": {"ours": 10, "eager": 5}}),
        "f": row("muladd", {"wall": {"ours": 4, "addcmul": 5}, "host": {"ours": 2, "addcmul": 3}}, operator="muladd"),
    }
    second = {
        "a": row("7B", {"wall": {"ours": 300, "eager": 300}}),
        "e": row("decode", {"wall": {}, "device": {"ours": 8, "eager": 4}}),
    }
    machine = {"cpu": "a CPU", "cores": 2, "torch": "2.11", "accelerator": "a GPU"}
    return Document(machine, {"triton": "3.6"}, {"cuda": Run(first, {"d": "it ended"}), "triton": Run(second)})


MEASURED_ON = "\n\nMeasured on: a GPU, a CPU, 2 cores; PyTorch 2.11, triton 3.6. Copies reach 4050 GB/s.\n"


def body(table):
    assert table.endswith(MEASURED_ON)
    return table.removesuffix(MEASURED_ON).splitlines()[2:]


def test_training(document):
    assert body(tables.training(document)) == [
        "| `rms_norm` | 8 x 4 | forward | 100 | 90 | 89% | 1.50 | 1.10 | - | 1.50 |",
        "| `rms_norm` | 8 x 4, float32 | forward | 2000 | - | - | 0.50 | - | - | - |",
    ]


def test_decoding(document):
    line = "| `rms_norm` | 8 x 4 | forward | 2 | 10 | 2.00 / 0.50 | - / - | - / - | 4.00 / - |"
    assert body(tables.decoding(document)) == [line]


def test_muladd(document):
    assert body(tables.muladd(document)) == ["| `muladd` | 8 x 4 | 2 | - | 1.50 | - | - |"]


def test_findings(document, tmp_path):
    document.runs["triton"].rows["a"]["off"] = {"ours": float("nan"), "eager": 0.5}
    document.save(tmp_path / "speed.json")
    assert load(tmp_path / "speed.json").findings() == [
        "cuda: d: the process ended: it ended",
        "cuda: c: it raised",
        "triton: a: off by nan",
    ]


def test_pages(document, tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "SPEED_RESULTS", tmp_path / "speed.json")
    page = f"<!-- speed of muladd: benchmarks/summary.py writes this -->\n{summary.END}"
    assert summary.replaced(page) == page
    document.save(tmp_path / "speed.json")
    assert tables.muladd(document) in summary.replaced(page)
