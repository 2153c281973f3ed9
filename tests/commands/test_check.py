"""check on backends whose kernels end the process: what fails, what still runs, and the last line."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import muladd as muladd_package
import pytest
from opwheel_tools import scaffold

from tests.faults.builder import Site
from tests.faults.conftest import clean_environment, search_path
from tests.portions import first_of

pytestmark = pytest.mark.slow  # the kit, and the process of the first calls

KERNELS = """
import ctypes
import os
import time
from pathlib import Path

def null(*_):
    ctypes.string_at(0)

def at_seven(what):
    return lambda a, b: what() if a.numel() == 7 else a * b

def sleep():
    Path({started!r}).touch()
    time.sleep(60)
"""


@pytest.fixture
def check(tmp_path):
    """Starts ``muladd check acme`` for a backend that new-backend writes, with these functions as its kernels."""
    site = Site(tmp_path / "site")
    project = scaffold.new_backend(muladd_package.library, "acme", language="python", output=tmp_path / "project")

    def start(functions, chosen, before=(), **options):
        package = project.folder / "src/muladd_acme"
        kernels = (package / "kernels.py").read_text()
        kernels = re.sub(r"(FUNCTIONS.* = ){[^}]*}", lambda found: f"{found[1]}{functions}", kernels)
        helpers = KERNELS.format(started=str(tmp_path / "started"))
        site.install("acme", source=(package / "__init__.py").read_text(), files={"kernels.py": helpers + kernels})
        environment = clean_environment({"PYTHONPATH": search_path([site.root]), "MULADD_BACKENDS": "acme"})
        command = [sys.executable, "-m", "muladd", "check", "acme", *before]
        command += ["--", "-q", "-p", "no:cacheprovider", *chosen]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )

    return start


def test_a_crash_is_its_operators_failure(check):
    """Also where it is a derivative of another operator. Everything else runs, and pytest's frames are not shown."""
    chosen = "(test_special_values and float32) or test_only_needed_gradients"
    process = check("{'scale': null, 'muladd_backward': lambda grad, a, b: os.abort()}", ["-k", chosen])
    output = process.communicate()[0]
    assert process.returncode == 1
    assert output.splitlines()[-1] == "muladd check acme: there are failures: see above"
    assert "Fatal Python error" not in output
    how = "a call of its kernel ends the process: killed by"
    assert f"scale): {how} SIGSEGV: scale(bfloat16[2, 3, 4, 5], 2.7)" in output
    assert f"muladd_backward): {how} SIGABRT: muladd_backward(bfloat16[2, 3, 4, 5], " in output
    operators = output.partition("coverage of")[2].splitlines()[1]
    _, *columns = zip(*map(str.split, re.findall(r"^(?:gradients|values) .*$", output, re.MULTILINE)), strict=True)
    marks = dict(zip(operators.split(), columns, strict=True))
    broken = {"scale", "mul", "muladd", "fma", "muladd_backward"}
    assert {name for name, of_one in marks.items() if "FAIL" in of_one} == broken
    assert {name for name, of_one in marks.items() if "ok" in of_one} == {"add", "mul", "muladd", "fma"}
    assert "a call of the kernel of muladd_backward ends the process: killed by SIGABRT" in output


def test_a_later_crash_names_the_test(check):
    process = check("{'mul': at_seven(null)}", ["-k", "test_sizes"])
    output = process.communicate()[0]
    assert process.returncode == 1
    where = "test_values.py::test_sizes[mul-float16]; what comes after it was not run"
    assert output.splitlines()[-1] == f"muladd check acme: killed by SIGSEGV in {where}"
    assert "Fatal Python error" not in output


SIGNALS = [(signal.SIGINT, "all"), (signal.SIGTERM, "check"), (signal.SIGINT, "check"), (signal.SIGTERM, "all")]


@pytest.mark.parametrize("sent", first_of(SIGNALS, 2), ids=lambda sent: f"{sent[0].name}-{sent[1]}")
def test_an_interrupt_names_the_test(check, tmp_path, sent):
    number, to = sent
    process = check("{'mul': at_seven(sleep)}", ["-k", "test_sizes"], start_new_session=True)
    while not (tmp_path / "started").exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    os.killpg(process.pid, number) if to == "all" else process.send_signal(number)
    last = process.communicate()[0].splitlines()[-1]
    assert process.returncode == 1
    assert last.startswith("muladd check acme: ")
    assert "in test_values.py::test_sizes[mul-float16]; what comes after it was not run" in last


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["-k", "test_sizes and add and float64"], "no test failed"),
        (["-k", "nothing_of_this_name"], "no test was chosen"),
        (["--no-such-option"], "pytest cannot be run like this: see above; no test was run"),
    ],
    ids=["passes", "no test", "usage"],
)
def test_the_last_line(check, options, line):
    process = check("{}", options)
    assert process.communicate()[0].splitlines()[-1] == f"muladd check acme: {line}"
    assert process.returncode == (0 if line == "no test failed" else 1)


def test_one_operator_fast(check, tmp_path):
    """Nothing is traced or compiled, no process makes first calls, and the matrix fits on a narrow terminal."""
    matrix = tmp_path / "matrix.json"
    process = check("{'mul': lambda a, b: a * b}", ["--matrix", str(matrix)], before=["--operators", "mul", "--fast"])
    output = process.communicate()[0]
    assert process.returncode == 0, output
    document = json.loads(matrix.read_text())
    assert {row["operator"] for row in document["results"]} == {"mul", "mul.out"}
    assert not {"compile", "opcheck", "export"} & document["subsystems"].keys()
    assert any(line.endswith("tests left out by --fast") for line in output.splitlines())
    assert re.search(r"^values +ok +--$", output, re.MULTILINE)
    assert "got empty parameter set" not in output


def test_one_operator_that_is_none(check):
    process = check("{}", [], before=["--operators", "mull"])
    assert "there is no operator 'mull'; known are: " in " ".join(process.communicate()[0].split())
    assert process.returncode == 2
