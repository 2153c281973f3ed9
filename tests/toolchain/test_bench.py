"""``muladd bench``, as a user types it: on small cases, whose times nobody looks at."""

import contextlib
import ctypes.util
import io
import json
import os
from dataclasses import replace
from types import SimpleNamespace

import muladd
import pytest
import torch
from muladd.opinfos.benchmarks import SUITE
from opwheel_tools.bench import plot, samples_plot, tables, triad
from opwheel_tools.bench.other_process import OtherProcess
from opwheel_tools.bench.results import Measurement, Results, Row
from opwheel_tools.bench.runner import Runner
from opwheel_tools.bench.sampling import QUICK
from opwheel_tools.bench.suite import Case, Form, Shown
from opwheel_tools.bench.unavailable import UnavailableError
from rich.console import Console

from tests.command_line import invoke

NOT_COMPILED = ("--skip", "compile", "--skip", "muladd in compile")
ALONE = tuple(word for one in SUITE.baselines for word in ("--skip", one.name))


def bench(*arguments):
    """In this process: importing PyTorch takes longer than all of these runs."""
    return invoke("muladd", "bench", *arguments)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Every group once, without the compiler's long work."""
    folder = tmp_path_factory.mktemp("bench")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    result = bench("--quick", *NOT_COMPILED, "--json", folder / "run.json", "--plot", folder / "run.png")
    torch.set_num_threads(threads)
    assert result.exit_code == 0, result.stdout + result.stderr
    return SimpleNamespace(stdout=result.stdout, folder=folder, json=json.loads((folder / "run.json").read_text()))


@pytest.mark.slow
def test_every_group_with_every_implementation(run):
    assert {row["group"] for row in run.json["rows"]} == set(SUITE.groups)
    taken = {name for row in run.json["rows"] for name in row["measurements"]}
    assert taken == {"muladd", "torch.ops", "torch.ops.aten", "eager", "addcmul", "mul_", "custom_op", "triad"}
    assert {row["dtype"] for row in run.json["rows"]} == {"float32", "float64", "bfloat16", "float16"}
    assert min(row["elements"] for row in run.json["rows"]) == 4
    assert run.json["findings"] == []
    assert run.json["settings"]["threads"] == 1
    for row in run.json["rows"]:
        for one in row["measurements"].values():
            assert 0 < one["lower_quartile_s"] <= one["median_s"] <= one["upper_quartile_s"]
            assert one["samples"] >= 5


@pytest.mark.slow
def test_tables(run):
    for group in SUITE.groups:
        assert f"\n{group} " in f"\n{run.stdout}"
    assert "channels-last" in run.stdout
    assert "[B,T,D]*[B,1,D]" in run.stdout


@pytest.mark.slow
def test_picture(run):
    from matplotlib.image import imread

    picture = imread(run.folder / "run.png")
    assert picture.shape[0] > 300
    assert picture.std() > 0.05  # something is drawn


@pytest.mark.slow
def test_fresh_results():
    """Large ones are next to what says where the time goes; one implementation is timed in a process of its own."""
    results = Results({}, {})
    names = {"addcmul", "huge pages", "small pages", "addcmul, huge pages", "addcmul, glibc", "addcmul, out="}
    implementations = [SUITE.ours, *(one for one in SUITE.baselines if one.name in names)]
    with contextlib.closing(Runner(SUITE, "cpu", implementations, QUICK, results)) as runner:
        for elements in (2**12, 2**23):
            runner.run(Case("new", Form.NEW, "contiguous", torch.float32, elements))
    small, large = results.rows
    assert set(small.measurements) == {"muladd", "addcmul"}
    assert set(large.measurements) == {"muladd", *names}
    assert (results.findings, results.notes) == ([], [])
    size = 2**23 * 4
    for name, one in large.measurements.items():
        added = 0 if name == "addcmul, out=" else size
        assert added <= one.resident_bytes + 2**20 <= added + 2**23, name
    assert muladd.library.policy.huge_pages == "advise"
    assert muladd.library.policy.result_cache == "keep"


def test_the_environment_of_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    variables = {"OMP_WAIT_POLICY": "PASSIVE", "MULADD_NOTHING": "1"}
    with contextlib.closing(OtherProcess(SUITE, variables)) as process:
        assert {name: process.run(os.getenv, name) for name in variables} == variables
        assert process.run(torch.get_num_threads) == torch.get_num_threads()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "MULADD_NOTHING" not in os.environ
    with pytest.raises(UnavailableError, match="which module"):
        OtherProcess(replace(SUITE, module=""), variables)


@pytest.mark.slow
def test_an_allocator_that_is_preloaded(monkeypatch):
    """One that is not there is left out, with a note; so is one that the process has not loaded."""
    case = Case("new", Form.NEW, "contiguous", torch.float32, 2**22)
    (allocator,) = [one for one in SUITE.baselines if one.name == "addcmul, jemalloc"]

    def measured(library):
        monkeypatch.setattr(ctypes.util, "find_library", lambda name: library)
        results = Results({}, {})
        with contextlib.closing(Runner(SUITE, "cpu", [SUITE.ours, allocator], QUICK, results)) as runner:
            runner.run(case)
        return set(results.rows[0].measurements), results.notes

    there = ctypes.util.find_library("m")  # any library does, the C library's own for one
    assert measured(there) == ({"muladd", "addcmul, jemalloc"}, [])
    left_out = {"muladd"}
    assert measured(None) == (left_out, ["addcmul, jemalloc is left out: there is no libjemalloc on this system"])
    note = "addcmul, jemalloc is left out: the process that was to preload libnothing.so has not loaded it"
    assert measured("libnothing.so") == (left_out, [note])


MACHINE = {"cpu": "a CPU", "capability": "AVX2", "torch": "2.13.0", "huge_pages": "madvise"}


def test_where_results_were_measured():
    assert Results(MACHINE, {"threads": 2}).measured_on() == "a CPU, 2 threads, AVX2, torch 2.13.0, huge pages: madvise"
    results = Results({"accelerator": "a GPU", **MACHINE}, {"threads": 1, "label": "commit 0"})
    expected = "a GPU, a CPU, 1 threads, AVX2, torch 2.13.0, huge pages: madvise, commit 0"
    assert results.measured_on() == expected


def test_a_run_that_was_interrupted_at_once_has_pictures(tmp_path):
    results = Results(MACHINE, {"threads": 2})
    plot.save(results, SUITE, tmp_path / "suite.png")
    samples_plot.save(results, tmp_path / "samples.png")
    assert {file.name for file in tmp_path.iterdir()} == {"suite.png", "samples.png"}


def test_scattering_times_are_called_noisy():
    one = Measurement(1e-3, 0.5e-3, 9e-3, 7, 1, 10**6, "f()", 3 * 2**20)
    row = Row("new/f", "new", "new", "contiguous", "float32", 4, {"f": one})
    console = Console(width=200, file=io.StringIO())
    tables.show(Results({}, {}, [row]), Shown("f", explanations={"f": "what is measured"}), console)
    text = console.file.getvalue()
    assert "noisy" in text.splitlines()[2]
    assert "3 MiB" in text
    assert "425%" not in text
    assert "f: what is measured" in text


def changed(run, factor, path):
    """The run's file as if its muladd had taken that much longer."""
    fields = json.loads(json.dumps(run.json))
    for row in fields["rows"]:
        for key in ("median_s", "lower_quartile_s", "upper_quartile_s"):
            row["measurements"]["muladd"][key] *= factor
    path.write_text(json.dumps(fields))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "code", "slower"), [(1e-4, 1, 6), (1e4, 0, 0)], ids=["slower", "faster"])
def test_compare(run, tmp_path, factor, code, slower):
    old = changed(run, factor, tmp_path / "old.json")
    result = bench("--quick", "--only", "overhead", *ALONE, "--compare", old)
    assert result.exit_code == code, result.stdout + result.stderr
    assert f"{slower} of 6 cases are slower by more than 10%" in result.stdout


@pytest.mark.slow
def test_compare_with_another_machine(run, tmp_path):
    old = changed(run, 1e-4, tmp_path / "old.json")
    old.write_text(old.read_text().replace('"threads": 1', '"threads": 64'))
    # A tolerance that nothing can exceed.
    result = bench("--quick", "--only", "overhead", *ALONE, "--compare", old, "--tolerance", "1e9")
    assert result.exit_code == 0
    assert f"not the same conditions: threads was 64, is {torch.get_num_threads()}" in result.stdout


@pytest.mark.nightly
@pytest.mark.slow
def test_under_compile(tmp_path):
    result = bench("--quick", "--only", "overhead", "--json", tmp_path / "run.json")
    assert result.exit_code == 0, result.stdout + result.stderr
    rows = {row["form"]: row["measurements"] for row in json.loads((tmp_path / "run.json").read_text())["rows"]}
    assert {"compile", "muladd in compile"} <= set(rows["no_grad"])
    assert "compiled_muladd(a, b, c)" in rows["no_grad"]["muladd in compile"]["statement"]


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    triad._library.cache_clear()
    result = bench("--quick", "--only", "in-place")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "compile is left out: CXX is 'no-such-compiler', but there is no such command" in result.stdout
    assert "triad is left out: CXX is 'no-such-compiler', but there is no such command" in result.stdout


def test_interrupted_it_shows_what_it_has(tmp_path, monkeypatch):
    run, measured = Runner.run, []

    def run_once(self, case):
        if measured:
            raise KeyboardInterrupt
        measured.append(case)
        run(self, case)

    monkeypatch.setattr(Runner, "run", run_once)
    result = bench("--quick", "--only", "overhead", *NOT_COMPILED, "--json", tmp_path / "run.json")
    assert "interrupted after 1 of 6 cases" in result.stdout
    assert len(json.loads((tmp_path / "run.json").read_text())["rows"]) == 1


def test_a_wrong_result_is_a_finding_and_not_timed(tmp_path, monkeypatch):
    """As if the kernel forgot c."""
    monkeypatch.setattr(muladd, "muladd", lambda a, b, c: a * b)
    result = bench("--quick", "--only", "new", *NOT_COMPILED, "--json", tmp_path / "run.json")
    assert result.exit_code == 1
    assert "wrong: new/new/contiguous/float32/65536: muladd: the result is off by" in result.stdout
    assert json.loads((tmp_path / "run.json").read_text())["rows"] == []


def test_an_implementation_that_fails_is_left_out_with_its_reason(monkeypatch):
    monkeypatch.delattr(torch, "addcmul")
    result = bench("--quick", "--only", "new", *NOT_COMPILED)
    assert result.exit_code == 0
    assert "note: addcmul is left out of new/new/contiguous/float32/65536: AttributeError" in result.stdout
    result = bench("--quick", "--only", "new", "--only", "in-place", *NOT_COMPILED)
    note = "note: addcmul is left out of new/new/contiguous/float32/65536 and 1 more: AttributeError"
    assert result.stdout.count("addcmul is left out") == 1
    assert note in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "xpu"), ["no backend for 'xpu' is loaded", "cpu", "muladd doctor"]),
        (("--skip", "nobody"), ["no baseline 'nobody'", "addcmul"]),
        (("--json", "/nowhere/run.json"), ["/nowhere/run.json cannot be written"]),
        (("--plot", "run.text"), ["must end in one of", "png"]),
        (("--compare", "/nowhere/run.json"), ["was not written by bench --json"]),
        (("--only", "nothing"), ["nothing", "overhead"]),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_wrong_usage(arguments, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    result = bench("--quick", *arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.stderr


FORMAT = '"format": {"name": "opwheel bench", "version": 2}'


@pytest.mark.parametrize("text", ['{"format": 2}', "[]", f'{{{FORMAT}, "rows": [{{"measurements": 1}}]}}', "no JSON"])
def test_compare_with_another_file(tmp_path, text):
    (tmp_path / "old.json").write_text(text)
    result = bench("--quick", "--compare", tmp_path / "old.json")
    assert result.exit_code == 2
    assert "old.json" in result.stderr
