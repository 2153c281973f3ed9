"""Every library has the commands, under its own name; several live in one process and do not notice each other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_python import server

from .libraries import install, write_script

ROOT = str(Path(__file__).parents[2])
NAMES = ("waves", "tides", "dunes")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for name in NAMES:
        install(folder, name)
    return folder


@pytest.fixture
def run(site, tmp_path):
    """Run a program in an empty folder; muladd is installed besides."""

    def run(*command, **environment):
        variables = os.environ | {"PYTHONPATH": str(site), "COLUMNS": "80"} | environment
        program, *arguments = command
        if program == sys.executable:
            return server().run(*arguments, environment=variables, cwd=tmp_path)
        return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=tmp_path)

    return run


LOGGED = """
import logging, sys
logging.basicConfig(level=sys.argv[1], format="%(levelname)s %(name)s %(message)s")
import waves
"""


def test_the_registry_logs_what_it_does(run):
    done = {
        level: run(sys.executable, "-c", LOGGED, level).stderr.splitlines() for level in ("WARNING", "INFO", "DEBUG")
    }
    own = {level: [line for line in lines if "opwheel.registry" in line] for level, lines in done.items()}
    assert own["WARNING"] == []
    assert own["INFO"] == ["INFO opwheel.registry waves: loaded: cpu"]
    assert {"schemas", "discover", "plugin"} <= {line.split(": ")[1] for line in own["DEBUG"]}


@pytest.fixture
def waves(run, tmp_path):
    """The script of the library ``waves``, which somebody has renamed."""
    script = write_script(tmp_path / "renamed", sys.executable, "waves")
    return lambda *arguments, **environment: run(script, *arguments, **environment)


# Runs several commands in one process, whose start takes longer than all of them, and prints what became of each.
BATCH = """
import json, sys
sys.path.append(sys.argv[2])
from tests.command_line import invoke

done = [invoke("waves", *arguments) for arguments in json.loads(sys.argv[1])]
print("\\n" + json.dumps([(one.exit_code, one.output) for one in done]))
"""
COMMANDS = {
    "doctor": (["doctor"], 0, "waves-core 3.1.4 (ABI "),
    "doctor --deep": (["doctor", "--deep"], 0, "waves-cpu 3.1.4"),
    "explain": (["explain", "blend", "cpu"], 0, "cpu (waves-cpu 3.1.4) at CPU"),
    "explain without a kernel": (
        ["explain", "blend", "mps"],
        1,
        "waves doctor` explains more, WAVES_FALLBACK=reference",
    ),
    "explain unknown": (["explain", "nothing"], 2, "there are blend"),
    "lock": (["lock"], 0, "waves.lock: locked opwheel 0.1.0, waves-core 3.1.4, waves-cpu 3.1.4; winners: CPU: cpu"),
    "config": (["config", "--libs"], 0, "libwaves_schema.so"),
    "check unknown": (["check", "nothing"], 2, "known are: cpu"),
    "bench": (["bench"], 2, "waves.opinfos"),
    "new-backend": (["new-backend", "acme", "--language", "python"], 0, "waves doctor"),
    "no such command": (["new-library", "dunes"], 2, "there is no command 'new-library'; `waves --help` lists them"),
    "--version": (["--version"], 0, "waves-core 3.1.4, opwheel "),
    "nothing": ([], 2, "usage: waves"),
}


@pytest.fixture(scope="module")
def outcomes(site, tmp_path_factory):
    """Exit code and output of each command."""
    command = [sys.executable, "-c", BATCH, json.dumps([arguments for arguments, _, _ in COMMANDS.values()]), ROOT]
    folder = tmp_path_factory.mktemp("batch")
    variables = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables, cwd=folder)
    return dict(zip(COMMANDS, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("case", COMMANDS)
def test_commands_of_a_library(outcomes, case):
    _, expected, words = COMMANDS[case]
    code, text = outcomes[case]
    assert code == expected, text
    assert words in " ".join(text.split())
    assert "muladd" not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("command", [("-m", "opwheel", "--library", "waves"), ("-m", "waves")], ids=" ".join)
def test_the_library_is_named(run, command):
    done = run(sys.executable, *command, "doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert ["cpu", "loaded", "CPU", "waves-cpu", "3.1.4"] in [line.split()[:5] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_check_runs_the_kit(waves):
    options = ("--", "-q", "-p", "no:cacheprovider", "-k", "test_sizes and float32")
    done = waves("check", "cpu", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "coverage of waves's backend cpu" in done.stdout
    done = waves("check", "cpu", *options, WAVES_BACKENDS="")
    assert done.returncode == 1
    assert done.stdout.startswith("waves: the backend 'cpu' (waves-cpu 3.1.4) is disabled: ")
    assert "WAVES_BACKENDS" in done.stdout


@pytest.mark.slow
def test_a_promised_backend_that_is_not_loaded_fails_the_kit(run):
    kit = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--pyargs", "opwheel_tools.testing")
    variables = {"WAVES_BACKENDS": "", "WAVES_REQUIRE": "cpu"}
    done = run(sys.executable, *kit, "--library", "waves", "--backend", "cpu", **variables)
    assert done.returncode == 1
    assert "WAVES_REQUIRE promises it, but backend 'cpu' is disabled: " in done.stdout


@pytest.mark.slow
def test_a_module_opinfos_with_an_error_is_named(run, tmp_path):
    """By the commands that need it; the library itself does not import it."""
    install(tmp_path, "waves")
    (tmp_path / "waves/opinfos.py").write_text("1 / 0\n")
    words = "waves.opinfos cannot be imported: ZeroDivisionError: division by zero; correct the module"
    path = {"PYTHONPATH": str(tmp_path)}
    for command in (["bench", "--quick"], ["check", "cpu"]):
        done = run(sys.executable, "-m", "waves", *command, **path)
        assert done.returncode == 2
        assert words in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
    assert run(sys.executable, "-m", "waves", "explain", "blend", "cpu", **path).returncode == 0


@pytest.mark.slow
def test_what_must_not_be_opened(waves):
    """doctor --deep and lock decide it before the library is imported."""
    refused = waves("doctor", WAVES_LOCK="/nowhere")
    assert refused.returncode == 1
    assert "/nowhere: cannot be read" in refused.stdout
    assert "correct or unset WAVES_LOCK" in refused.stdout
    assert "Traceback" not in refused.stderr
    assert waves("lock", WAVES_LOCK="/nowhere").returncode == 0
    deep = waves("doctor", "--deep", WAVES_TRACE="1")
    assert deep.returncode == 0
    assert "disabled: cpu" in deep.stderr
    assert "loaded: cpu" not in deep.stderr


def test_help_fits_into_80_columns(waves, run):
    for done in (waves("-h"), run(sys.executable, "-m", "opwheel", "--help")):
        assert done.returncode == 0
        assert all(len(line) <= 80 for line in done.stdout.splitlines())
        assert "..." not in done.stdout.partition("commands:")[2].partition("COMMAND")[0]
        assert "--show-completion" in done.stdout


COMPLETED = """
eval "$1"
eval "compgen $(complete -p waves | sed 's/complete//; s/waves$//') -- do"
"""


def test_completion(waves, run):
    line = waves("--show-completion", "bash").stdout
    assert run("bash", "-c", COMPLETED, "bash", line).stdout.split() == ["doctor"]
    for shell in ("zsh", "fish"):
        assert {"waves", "doctor", "explain"} <= set(waves("--show-completion", shell).stdout.replace('"', " ").split())
    wrong = waves("--show-completion", "csh")
    assert (wrong.returncode, "invalid choice: 'csh'" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("doctor",), "opwheel --library MODULE"),
        (("--library", "nowhere", "doctor"), "no module 'nowhere'"),
        (("--library", "json", "doctor"), "'json' is not an operator library"),
        (("--library", "waves"), "usage: opwheel"),
        (("new-library", "Waves"), "not a valid name for a library"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_of_opwheel(run, arguments, words):
    done = run(sys.executable, "-m", "opwheel", *arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


@pytest.mark.slow
def test_opwheel_s_own_commands(run, tmp_path):
    opwheel = (sys.executable, "-m", "opwheel")
    assert run(*opwheel, "--version").stdout.startswith("opwheel ")
    assert run(*opwheel, "--library", "waves", "--version").stdout.startswith("waves-core 3.1.4, opwheel ")
    assert run(*opwheel, "new-backend", "acme", "--library", "waves", "--language", "python").returncode == 0
    assert (tmp_path / "waves-acme/pyproject.toml").is_file()
    assert run(*opwheel, "new-library", "ponds").returncode == 0
    assert (tmp_path / "ponds/core/pyproject.toml").is_file()


@pytest.mark.slow
def test_the_kit_s_options_are_there_for_the_kit_alone(run, tmp_path):
    """Another project's options may have the same names."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    for name in ('library', 'backend', 'device', 'huge', 'matrix'):\n"
        "        parser.addoption(f'--{name}')\n"
    )
    (tmp_path / "test_own.py").write_text(
        "def test(request):\n    assert request.config.getoption('--device') == 'x'\n"
    )
    pytest_here = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run(*pytest_here, "test_own.py", "--device", "x")
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "conftest.py").unlink()
    without = run(*pytest_here, "--pyargs", "opwheel_tools.testing", "--backend", "cpu")
    assert "which operator library? --library MODULE" in without.stdout + without.stderr


THREE = """
import json, sys
import tides, waves, dunes, muladd
sys.path.append(sys.argv[1])
from tests.command_line import invoke

def doctor(name):
    return json.loads(invoke(name, "doctor", "--json").stdout)

print(json.dumps({name: doctor(name) for name in ("waves", "tides", "dunes", "muladd")}))
"""


@pytest.mark.slow
def test_several_libraries_in_one_process(run, tmp_path):
    """Policy, digest, lock and doctor of each are its own."""
    tides_lock = tmp_path / "tides.lock"
    opwheel = (sys.executable, "-m", "opwheel")
    assert run(*opwheel, "--library", "tides", "lock", tides_lock).returncode == 0
    policy = tmp_path / "dunes.toml"
    policy.write_text('[policy]\nfallback = "reference"\n')
    settings = {"WAVES_BACKENDS": "", "TIDES_LOCK": str(tides_lock), "DUNES_PLUGINS": str(policy)}
    done = run(sys.executable, "-W", "ignore", "-c", THREE, ROOT, **settings)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    states = {name: report["backends"]["cpu"]["state"] for name, report in reports.items()}
    assert states == {"waves": "disabled", "tides": "loaded", "dunes": "loaded", "muladd": "loaded"}
    assert {name: report["ok"] for name, report in reports.items()}["waves"] is False
    assert [reports[name]["distribution"] for name in NAMES] == ["waves-core", "tides-core", "dunes-core"]
    assert len({report["digest"] for report in reports.values()}) == 4

    # What one library has locked is checked when that one is imported, and then alone.
    locked = json.loads(tides_lock.read_text())
    locked["fallback"] = "reference"
    tides_lock.write_text(json.dumps(locked))
    assert run(sys.executable, "-c", "import waves, dunes, muladd", **settings).returncode == 0
    refused = run(sys.executable, "-c", "import waves, dunes, muladd, tides", **settings)
    assert "OPWHEEL-E071" in refused.stderr
    assert "tides lock" in refused.stderr
    assert run(*opwheel, "--library", "tides", "doctor", **settings).returncode == 1


def test_no_part_of_waves_needs_muladd(run):
    """Nothing of the first library is imported by the commands of another."""
    code = (
        "import sys; from opwheel.commands import run;"
        "assert run('waves', 'waves', ['doctor']) == 0;"
        "print([name for name in sys.modules if name.startswith('muladd')])"
    )
    assert run(sys.executable, "-c", code).stdout.splitlines()[-1] == "[]"
