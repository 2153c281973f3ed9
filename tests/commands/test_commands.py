"""The command line of muladd: what it says of the wheels that are installed here."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import torch
from muladd import library
from opwheel._torch.native import library_file
from opwheel.commands import suggest
from opwheel.dispatch import native_autograd

from tests.command_line import invoke
from tests.forked_python import server

# What installers write for its console script.
SCRIPT = ("-c", "from opwheel.scripts import muladd; muladd()")


def muladd(*arguments, library="muladd"):
    return invoke(library, *arguments)


def test_doctor_shows_the_backends():
    result = muladd("doctor")
    assert result.exit_code == 0, result.output
    assert "muladd-core" in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith("cpu"))
    assert row.split()[:4] == ["cpu", "loaded", "CPU", "muladd-cpu"]


def test_doctor_says_what_derivatives_in_python_cost():
    result = server().run(*SCRIPT, "doctor", environment={**os.environ, "OPWHEEL_AUTOGRAD": "python"})
    costs = "derivatives are computed in Python, right and with more time for each call: OPWHEEL_AUTOGRAD=python"
    assert f"autograd: python\n  {costs}\n" in result.stdout
    assert "calls:" not in result.stdout  # for the same reason


@pytest.mark.skipif(bool(native_autograd.why_not()), reason=native_autograd.why_not())
def test_doctor_lists_no_operators_that_only_their_authors_can_change():
    in_python = json.loads(muladd("doctor", "--json", library="transformer_ops").stdout)["autograd"]["in_python"]
    assert in_python == {}
    text = muladd("doctor", library="transformer_ops").stdout
    assert "autograd: native\n" in text
    assert "attention" not in text


def test_doctor_json():
    report = json.loads(muladd("doctor", "--json").stdout)
    assert report["ok"] is True
    assert report["calls"]["kind"] == ("python" if report["calls"]["reason"] else "native")
    assert report["backends"]["cpu"]["state"] == "loaded"
    versions = {"library", "distribution", "version", "abi", "opwheel", "torch", "python", "platform"}
    assert set(report) >= versions | {"digest", "runtimes", "not_installed", "findings"}


def machine(root, monkeypatch, *, nvidia=False, gpu=None):
    """A machine's files, as doctor looks at them."""
    monkeypatch.setattr(suggest, "ROOT", root)
    if nvidia:
        driver = root / "proc/driver/nvidia"
        driver.mkdir(parents=True)
        (driver / "version").write_text("NVRM version: 580.65.06")
    if gpu:
        vendor, name = gpu
        card = root / "sys/class/drm/card0/device"
        card.mkdir(parents=True)
        (card / "vendor").write_text(f"{vendor}\n")
        (card / "driver").symlink_to(root / "sys/bus/pci/drivers" / name)


@pytest.mark.parametrize(
    ("found", "wheels"),
    [
        ({}, "muladd-core muladd-cpu"),
        ({"nvidia": True}, "muladd-core muladd-cpu muladd-cuda"),
        ({"gpu": ("0x8086", "xe")}, "muladd-core muladd-cpu muladd-sycl"),
        ({"gpu": ("0x8086", "vfio-pci")}, "muladd-core muladd-cpu"),
        ({"gpu": ("0x1002", "amdgpu")}, "muladd-core muladd-cpu"),
    ],
    ids=["cpu", "nvidia", "intel", "intel for a virtual machine", "amd"],
)
def test_doctor_suggests_one_command(found, wheels, tmp_path, monkeypatch):
    machine(tmp_path, monkeypatch, **found)
    result = muladd("doctor", "--suggest")
    assert result.exit_code == 0
    assert result.stdout == f"pip install {wheels}\n"
    without = ("nvidia" in found and torch.version.cuda is None) or ("muladd-sycl" in wheels)
    assert ("install PyTorch's build for" in result.stderr) == without


def test_doctor_suggests_a_wheel_with_several_backends_once(tmp_path, monkeypatch):
    pytest.importorskip("transformer_ops")
    machine(tmp_path, monkeypatch, nvidia=True, gpu=("0x8086", "xe"))
    result = muladd("doctor", "--suggest", library="transformer_ops")
    wheels = "transformer-ops-core transformer-ops-cpu transformer-ops-cuda transformer-ops-triton"
    assert result.stdout == f"pip install {wheels}\n"


def strict(schema):
    """The schema, where a key that it does not name is an error."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "required" in schema else {}
    return {key: strict(value) for key, value in schema.items()} | closed


@pytest.fixture(scope="module")
def doctor_schema():
    import opwheel.commands

    schema = json.loads(Path(opwheel.commands.__file__).with_name("doctor.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return strict(schema)


@pytest.mark.parametrize(
    ("options", "variables", "code"),
    [
        ((), {}, 0),
        ((), {"MULADD_LOCK": ""}, 1),  # a finding
        ((), {"MULADD_BACKENDS": ""}, 1),  # nothing is loaded
        (("--deep",), {}, 0),
    ],
    ids=["well", "finding", "none", "deep"],
)
def test_doctor_s_report_is_as_its_schema_says(doctor_schema, options, variables, code):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MULADD_")} | variables
    result = server().run(*SCRIPT, "doctor", "--json", *options, environment=environment)
    report = json.loads(result.stdout)
    assert (result.returncode, report["format"]) == (code, {"name": "opwheel doctor", "version": 1})
    jsonschema.validate(report, doctor_schema)


def test_the_schema_s_states_are_those_of_the_registry(doctor_schema):
    from opwheel.registry import State

    states = doctor_schema["$defs"]["backend"]["properties"]["state"]["enum"]
    assert sorted(states) == sorted(map(str, State))


def test_explain():
    result = muladd("explain", "muladd", "cpu")
    assert result.exit_code == 0
    assert "libmuladd_cpu.so" in result.stdout
    assert "digest" in result.stdout
    assert "muladd_backward" in muladd("explain").stdout


def test_explain_refuses_what_is_no_device():
    result = muladd("explain", "mul", "gpu")
    assert result.exit_code == 2
    assert result.stderr.startswith("muladd: DEVICE: Expected one of cpu, cuda, ")
    assert "cuda: mul" in muladd("explain", "mul", "cuda:1").stdout


@pytest.mark.parametrize("command", [("new-backend", "acme", "--library", "muladd"), ("new-library", "acme")])
def test_where_no_project_can_be_written(command):
    result = invoke(None, *command, "--output", "/proc/acme")
    assert result.exit_code == 2
    assert "/proc/acme" in result.output
    assert "Traceback" not in result.output


def test_explain_says_the_same_of_several_operators_once():
    answers = [line for line in muladd("explain").stdout.splitlines() if line.startswith("xpu: ")]
    assert answers == [f"xpu: {', '.join(library.operators)}"]
    assert "muladd::OPERATOR has no kernel for xpu" in muladd("explain").stdout
    assert "muladd::mul has no kernel for xpu" in muladd("explain", "mul", "xpu").stdout


@pytest.mark.parametrize("arguments", [("explain", "nothing"), ("config",), ("doctor", "--unknown")], ids=" ".join)
def test_wrong_usage(arguments):
    assert muladd(*arguments).exit_code == 2


def test_config():
    includes, libs = muladd("config", "--includes").stdout, muladd("config", "--libs").stdout.splitlines()
    own, framework = (folder.removeprefix("-I") for folder in includes.split()[:2])
    assert Path(own, "muladd/operators.h").is_file()
    assert Path(framework, "opwheel/detail/elementwise.h").is_file()
    assert [Path(path).name for path in libs] == ["libmuladd_schema.so", "libmuladd_cpu.so"]
    assert all(Path(path).is_file() for path in libs)
    assert "-DTORCH_TARGET_VERSION=0x020a" in muladd("config", "--cflags").stdout
    folder, *libraries = muladd("config", "--ldflags").stdout.split()
    assert (Path(folder.removeprefix("-L")) / "libtorch_cpu.so").is_file()
    assert "-ltorch_cpu" in libraries


def test_the_native_autograd_library(monkeypatch):
    if not native_autograd.why_not():
        (path,) = muladd("config", "--autograd").stdout.splitlines()
        assert Path(path) == library_file("autograd")
    monkeypatch.setattr(torch, "__version__", "2.14.0a0")
    result = muladd("config", "--autograd")
    assert result.exit_code == 2
    assert "torch 2.14.0a0 is not a release" in result.output


def test_lock_writes_and_checks(tmp_path):
    file = tmp_path / "muladd.lock"
    written = muladd("lock", file)
    assert written.exit_code == 0, written.output
    assert "winners: CPU: cpu" in written.stdout
    assert muladd("lock", file, "--check").stdout == f"{file}: no difference\n"
    file.write_text(file.read_text().replace('"fallback": "error"', '"fallback": "reference"'))
    changed = muladd("lock", file, "--check")
    assert changed.exit_code == 1
    assert "the fallback is 'error', locked is 'reference'" in changed.stdout


def test_lock_with_wrong_files(tmp_path):
    assert "cannot be written" in muladd("lock", tmp_path / "no/such").stderr
    missing = muladd("lock", tmp_path / "gone", "--check")
    assert missing.exit_code == 1
    assert "OPWHEEL-E070" in missing.stdout


@pytest.mark.parametrize("command", ["doctor", "doctor --json", "explain", "config --libs", "--version", "-h"])
def test_output_that_cannot_be_written(command):
    with Path("/dev/full").open("w") as full:
        program = [sys.executable, *SCRIPT, *command.split()]
        result = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "muladd: the output cannot be written: No space left on device\n"


def test_output_that_nobody_reads():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        program = [sys.executable, *SCRIPT, "--version"]
        result = subprocess.run(program, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        *((name, "is not the name of a module") for name in ("../x", ".muladd", "muladd.", "", "muladd/", "a-b")),
        *((name, "there is no module") for name in ("no_such", "muladd.no_such", "os.path.no_such", "no.such.one")),
        ("os.path", "is not an operator library"),
    ],
)
def test_library_that_is_none(module, reason):
    result = invoke(None, "--library", module, "doctor")
    assert result.exit_code == 2, result.output
    assert reason in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("folder", ["my backend", "it's", "$HOME", "a;b", "plain"])
@pytest.mark.parametrize("command", [("new-backend", "acme", "--library", "muladd"), ("new-library", "acme")])
def test_next_steps_can_be_copied(command, folder, tmp_path):
    result = invoke(None, *command, "--output", tmp_path / folder)
    (line,) = [line for line in result.output.splitlines() if line.startswith("  cd ")]
    assert shlex.split(line) == ["cd", str(tmp_path / folder)]


@pytest.mark.parametrize("name", ["my lock", "it's", "plain"])
def test_the_command_that_writes_a_lock_again_can_be_copied(name, tmp_path):
    file = tmp_path / name
    file.write_text("{}")
    shown = " ".join(muladd("lock", file, "--check").stdout.split())
    assert shlex.split(shown.partition("`")[2].partition("`")[0]) == ["muladd", "lock", str(file)]
