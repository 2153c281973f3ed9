"""The tables of docs that a sweep's results become."""

from opwheel_tools.bench.sweep_results import Compared, SweepResults

from benchmarks import summary, sweep_tables

RESULTS = SweepResults(
    {"cpu": "a processor", "cores": 2, "torch": "2.13.0"},
    {},
    [
        Compared("softmax", 1, 2, "float32", "contiguous", 1.0, 0.9, (0.84, 0.85, 0.99)),
        Compared("softmax", 1, 3, "float64", "contiguous", 1.0, 0.9, (0.93, 0.93, 0.93)),
        Compared("softmax", 64, 64, "float32", "contiguous", 1.0, 0.8, (0.8, 0.8, 0.8)),
        Compared("softmax", 64, 1024, "float32", "contiguous", 1.0, 1.5, (), {"inductor": 1.25}),
        Compared("rope", 64, 1024, "float32", "contiguous", 1.0, 3.0, (), {"inductor": 1.5, "other": 2.0}),
    ],
)


def test_what_is_slower():
    counts, _, points = sweep_tables.slower(RESULTS).partition("\n\n")
    assert counts.splitlines()[2:] == ["| `rope` | 1 | 0 | 0 | 3.00 |", "| `softmax` | 4 | 3 | 1 | 0.80 |"]
    assert points.splitlines()[2:] == [
        "| `softmax` | 1 | 2, 3 | float32, float64 | contiguous | 2 | 0.85 to 0.93 |",
        "| `softmax` | 64 | 64 | float32 | contiguous | 1 | 0.80 |",
    ]


def test_compiled_code():
    lines = sweep_tables.compiled(RESULTS).splitlines()
    assert lines[0] == "| | PyTorch | inductor | other |"
    assert lines[2:] == [
        "| `softmax`, (64, 1024), float32 | 1.50 | 1.25 | - |",
        "| `rope`, (64, 1024), float32 | 3.00 | 1.50 | 2.00 |",
    ]
    assert sweep_tables.compiled(SweepResults({}, {}, RESULTS.points[:1])) == ""


def test_pages_have_the_tables_once_there_are_results(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "SWEEP_RESULTS", tmp_path / "sweep.json")
    page = f"<!-- sweep: benchmarks/summary.py writes this -->\n{summary.END}"
    assert summary.replaced(page) == page
    RESULTS.save(tmp_path / "sweep.json")
    assert "| `softmax` | 4 | 3 | 1 | 0.80 |" in summary.replaced(page)
    assert "Measured on: a processor, 2 cores; PyTorch 2.13.0." in summary.replaced(page)
