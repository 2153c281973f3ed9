"""What the matrix of wheels reads of a build's table, and what it says is missing; nothing is built here."""

from pathlib import Path

from release import build, matrix


def test_the_table_of_a_build_is_read(tmp_path):
    wheel = tmp_path / "muladd_core-0.1.0-py3-none-manylinux_2_17_aarch64.whl"
    wheel.write_bytes(b"12345")
    table = build.table([build.Built("core", wheel, 1.0), build.Built("sycl", skipped="not for it: x86-64 alone")])
    assert matrix.rows_of(table) == {"core": wheel.name, "sycl": "skipped: not for it: x86-64 alone"}


def test_everything_that_is_not_there_is_said():
    report = {
        "wheels": {"x86_64": {"core": "core.whl"}, "aarch64": {"core": "core.whl", "sycl": "skipped: x86-64 alone"}},
        "audit": {"x86_64": "audited 2 wheels: as promised", "aarch64": "core.whl: it has no LICENSE"},
        "installed": {
            "x86_64, Python 3.13": {"torch": "2.15.0", "core.whl": "installed"},
            "x86_64, Python 3.15t": {"torch": "none on the index", "core.whl": "refused"},
        },
        "runs": {"installations": "7 passed in 3 s", "Pythons": "SKIPPED [1] there is no Python 3.14 here; 4 passed"},
    }
    assert matrix.missing(report) == [
        "aarch64: sycl: skipped: x86-64 alone",
        "x86_64, Python 3.15t: torch: none on the index",
        "x86_64, Python 3.15t: core.whl: refused",
        "aarch64: audit: core.whl: it has no LICENSE",
        "Pythons: SKIPPED [1] there is no Python 3.14 here; 4 passed",
    ]


def test_without_a_build_projects_have_the_wheel_that_is_there_or_none(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    monkeypatch.setattr(matrix, "HERE", "x86_64")
    (tmp_path / "dist/aarch64").mkdir(parents=True)
    for name in ("dist/muladd_sycl-0.1.0-py3-none-any.whl", "dist/aarch64/transformer_ops_cpu-0.1.0-py3-none-any.whl"):
        (tmp_path / name).touch()
    found = {machine: matrix.there(machine) for machine in ("x86_64", "aarch64")}
    assert found["x86_64"].pop("sycl") == "muladd_sycl-0.1.0-py3-none-any.whl"
    assert found["aarch64"].pop("transformer-cpu") == "transformer_ops_cpu-0.1.0-py3-none-any.whl"
    reason = found["aarch64"].pop("sycl")
    assert reason.startswith("skipped: ")
    assert "not built" not in reason
    assert found["x86_64"]["cuda"] == found["aarch64"]["transformer-cuda"] == "skipped: it was not built"
    report = {"wheels": found, "audit": {}, "installed": {}, "runs": {}}
    assert "aarch64: transformer-cuda: skipped: it was not built" in matrix.missing(report)


def test_nothing_is_missing_where_all_is_there():
    report = {
        "wheels": {"x86_64": {"core": "core.whl"}},
        "audit": {"x86_64": "audited 1 wheels: as promised"},
        "installed": {"x86_64, Python 3.13": {"torch": "2.15.0", "core.whl": "installed"}},
        "runs": {"installations": "7 passed in 3 s"},
    }
    assert matrix.missing(report) == []


def test_every_file_of_release_tests_is_run():
    files = {path.name for path in (Path(__file__).parents[1] / "release").glob("test_*.py")}
    assert set(matrix.RUNS.values()) == files
