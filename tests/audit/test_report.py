"""What an audit writes: a table, JSON by its schema, JUnit XML, a page; what binds shared libraries; a baseline."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import torch
import typer
from opwheel_tools.audit import binaries, checks, releases, report, reproduction, run, worker
from opwheel_tools.audit.elf import Symbol, read_tables
from opwheel_tools.audit.outcomes import Cell, Outcome, Result
from opwheel_tools.audit.target import Target
from opwheel_tools.commands.audit import audit
from opwheel_tools.judge import calls

from .command import ROOT, opwheel_audit, opwheel_audit_here


def test_the_names_of_checks():
    """What the command line knows without PyTorch is what there is."""
    assert tuple(checks.CHECKS) == run.CHECKS


@pytest.fixture(scope="module")
def command():
    """The command on an operator with a defect, which is audited once."""
    found = run.audit(
        "tests.audit.planted",
        samples="tests.audit.planted:samples",
        only=["planted_fake_dtype::positive"],
        checks=["fake", "gradients"],
    )

    def invoke(*options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "audit", lambda *_, **__: found)
            return opwheel_audit_here("tests.audit.planted", *options)

    return invoke


@pytest.fixture(scope="module")
def written(command, tmp_path_factory):
    """The folder of the files that the command writes."""
    folder = tmp_path_factory.mktemp("audit")
    done = command("--json", folder / "a.json", "--junit", folder / "a.xml", "--html", folder / "a.html")
    assert done.exit_code == 1, done.output
    return folder


@pytest.mark.slow
def test_json_is_as_its_schema_says(written):
    content = json.loads((written / "a.json").read_text())
    schema = json.loads((resources.files("opwheel_tools.audit") / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "more": 1}, schema)
    assert content["counts"]["silently wrong"] == 1
    (operator,) = content["operators"]
    assert "CPU" in operator["kernels"]


@pytest.mark.slow
def test_junit(written):
    suite = ElementTree.parse(written / "a.xml").getroot()
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("message") == "dtype of result 0: torch.float32 of the fake kernel, torch.int64 of the kernel"
    assert suite.get("failures") == "1"
    assert len(suite.findall("testcase/skipped")) == 1


@pytest.mark.slow
def test_a_page(written):
    page = (written / "a.html").read_text()
    assert "planted_fake_dtype::positive: fake" in page
    assert "planted_fake_dtype::positive(Tensor x) -&gt; Tensor" in page


def test_a_page_shows_no_markup_of_others(tmp_path):
    result = Result(Cell("a::b", 0, "fake", "given"), Outcome.WRONG, "<script>", "<script>")
    report.save_html(report.Audit("<script>", "", "", [], [], [result]), set(), tmp_path / "a.html")
    assert "<script>" not in (tmp_path / "a.html").read_text()


@pytest.mark.slow
def test_the_reproduction_needs_pytorch_and_the_library_alone(written, tmp_path):
    (row,) = [r for r in json.loads((written / "a.json").read_text())["results"] if r["reproduction"]]
    assert "opwheel" not in row["reproduction"]
    script = tmp_path / "script.py"
    script.write_text(row["reproduction"])
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "AssertionError: dtype of result 0: torch.float32 of the fake kernel, torch.int64" in done.stderr


@pytest.mark.parametrize("check", checks.CHECKS)
def test_the_reproduction_of_each_check_has_all_that_it_uses(check):
    call = calls.Call("aten::clone", (torch.rand(2, 3),), {})  # by way of the dispatcher, as "bounds" wants it
    text = reproduction.script(Target("torch"), call, check, "a message", exact=True)
    exec(compile(text, check, "exec"), {"__name__": "script"})  # it raises where something is wrong


@pytest.mark.slow
def test_a_baseline(command, written):
    assert report.known_findings(written / "a.json") == {
        "planted_fake_dtype::positive fake silently wrong: dtype of result 0"
    }
    done = command("--baseline", written / "a.json")
    assert done.exit_code == 0, done.output
    assert "known: planted_fake_dtype::positive: fake" in done.stdout


def test_a_second_defect_of_a_check_is_not_known(tmp_path, monkeypatch):
    """A baseline knows results and arguments, not checks as a whole."""
    cell = Cell("a::b", 0, "fake", "given")
    messages = ["dtype of result 0: torch.int64 of the fake kernel", "shape of result 1: (2,) of the fake kernel"]
    both = [Result(cell, Outcome.WRONG, message, "script") for message in messages]
    for name, results in (("first", both[:1]), ("both", both)):
        found = report.Audit("a", "", "", [{"operator": "a::b", "schema": "", "kernels": {}}], [], results)
        (tmp_path / name).write_text(json.dumps(report.as_json(found)))
    assert report.known_findings(tmp_path / "first") == {"a::b fake silently wrong: dtype of result 0"}
    assert len(found.findings) == 2
    monkeypatch.setattr(run, "audit", lambda *_, **__: found)
    assert opwheel_audit_here("a", "--baseline", tmp_path / "first").exit_code == 1
    assert opwheel_audit_here("a", "--baseline", tmp_path / "both").exit_code == 0


def test_a_note_is_said_once():
    """What PyTorch does to every operator of some kind."""
    cells = [Cell(f"a::{name}", 0, check, "given") for name in "bc" for check in ("forward mode", "torch.func.jvp")]
    audit = report.Audit("a", "", "", [], [], [Result(cell, Outcome.NOTED, "zero tangents") for cell in cells])
    assert audit.notes == {"zero tangents": ["a::b", "a::c"]}
    assert report.as_json(audit)["notes"] == [{"text": "zero tangents", "operators": ["a::b", "a::c"]}]
    assert audit.findings == []


def test_the_audit_s_own_errors_are_not_the_operator_s(monkeypatch):
    """A function of PyTorch's that a check calls itself, and the same function in an operator."""

    def raises(*_):
        raise AssertionError("of the operator")

    with torch.library._scoped_library("audit_errors", "DEF") as library:
        library.define("fails(Tensor x) -> Tensor")
        library.impl("fails", raises, "CPU")
        call = calls.Call("audit_errors::fails", (torch.ones(2),), {})
        assert worker.judge(call, "writes") == (Outcome.RAISES, "AssertionError: of the operator")
    monkeypatch.setattr(checks.results, "by_name", dict)
    outcome, message = worker.judge(calls.Call("aten::neg", (torch.ones(2),), {}), "writes")
    assert (outcome, message.partition(": ")[0]) == (Outcome.NOT_TRIED, "the audit cannot measure this")


def test_another_system_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(typer.BadParameter, match="needs Linux"):
        audit("torch")


def test_the_worst_of_several_calls_is_shown():
    cells = [Cell("a::b", i, "fake", "given") for i in range(2)]
    results = [Result(cells[0], Outcome.RIGHT), Result(cells[1], Outcome.WRONG, "bad\nworse", "script")]
    audit = report.Audit("a", "", "", [{"operator": "a::b"}, {"operator": "a::c"}], [], results)
    assert list(report.rows(audit)) == [("a::b", "fake", "silently wrong", "bad")]
    assert audit.untested == ["a::c"]


def test_what_binds_a_library():
    library = Path(torch.__file__).parent / "lib" / "libtorch_python.so"
    found = binaries.read(library)
    assert "libtorch_cpu.so" in found.needed
    assert found.unstable
    assert found.python
    assert found.glibc
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF"):
        binaries.read(Path(__file__))
    assert found.torch == ""


def test_the_tables_that_the_loader_reads(tmp_path):
    source, library = tmp_path / "tables.c", tmp_path / "libtables.so"
    source.write_text(
        "#include <stdio.h>\nint absent(void); __attribute__((weak)) int maybe(void); static int hidden;\n"
        'int present(void) { puts(""); return absent() + (maybe ? maybe() : 0) + hidden; }\n'
    )
    options = ["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN/a:/b", "-Wl,--no-as-needed", "-lm"]
    subprocess.run(["gcc", str(source), "-o", str(library), *options], check=True)
    tables = read_tables(library)
    assert [name for name in tables.needed if "libm." in name]
    assert tables.search == ["$ORIGIN/a:/b"]
    symbols = {symbol.name: symbol for symbol in tables.symbols}
    assert symbols["present"] == Symbol("present", is_defined=True, is_weak=False, version="")
    assert symbols["absent"] == Symbol("absent", is_defined=False, is_weak=False, version="")
    assert symbols["maybe"] == Symbol("maybe", is_defined=False, is_weak=True, version="")
    assert symbols["puts"].version.startswith("GLIBC_")
    assert symbols["puts"].version in tables.versions
    assert tables.glibc >= tuple(int(number) for number in symbols["puts"].version[6:].split("."))
    assert "" not in symbols
    assert "hidden" not in symbols
    library.write_bytes(library.read_bytes()[:4] + b"\x01" + library.read_bytes()[5:])  # of 32 bits
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF"):
        read_tables(library)


def test_the_lowest_torch_of_a_library_on_the_stable_abi():
    """The core is built for PyTorch 2.10; some interfaces of PyTorch 2.12 are newer."""
    found = binaries.read(Path(str(resources.files("muladd"))) / "libmuladd_schema.so")
    assert (found.unstable, found.python, found.torch) == ([], [], "2.10")
    assert "torch >= 2.10" in found.summary
    assert releases.lowest(["torch_call_dispatcher", "aoti_torch_cpu__grouped_mm"]) == "2.12"
    assert releases.lowest(["aoti_torch_no_such_function"]) == ""


def test_a_shared_library_is_listed():
    """Schemas, where each kernel was registered, and what binds the library, of a file alone."""
    library = Path(str(resources.files("muladd"))) / "libmuladd_schema.so"
    done = opwheel_audit(library, "--check", "call", "--only", "muladd::scale")
    assert done.returncode == 2, done.stderr
    assert "nothing was checked" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("muladd::scale(Tensor ")
    assert f"{library.name}: stable ABI of torch alone, torch >= 2.10" in done.stdout


def test_an_operator_may_be_named_without_its_namespace():
    done = opwheel_audit_here("muladd", "--check", "call", "--only", "scale")
    assert done.exit_code == 0, done.output
    assert "muladd::scale(Tensor " in done.stdout
    assert "muladd::add(" not in done.stdout


def test_a_recording_without_calls_is_no_success(tmp_path):
    """Tests that call none of the operators, or not in the recorded processes."""
    done = opwheel_audit("muladd", "--record", tmp_path / "calls", "--", "true")
    assert done.returncode == 2, done.stdout
    assert "recorded 0 calls" in done.stderr
    assert "it called no operator of muladd" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["no_such_library"], "neither a module nor a shared library"),
        (["no_such.so"], "there is no file no_such.so"),
        (["torch", "--check", "nothing"], "no check 'nothing'"),
        (["torch", "--record", "no_such_file"], "there is no file no_such_file"),
        (["torch", "--", "true"], "a COMMAND is recorded into a file"),
        (["torch", "--baseline", __file__], "is not what --json of an earlier audit wrote"),
        (["muladd", "--only", "scal"], "Invalid value for --only: there is no operator 'scal'; there are: muladd::"),
        (["muladd", "--samples", "nope"], "Invalid value for --samples: "),
    ],
)
def test_wrong_usage(options, words):
    done = opwheel_audit_here(*options)
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.stderr.replace("│", " ").split())
