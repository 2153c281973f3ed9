"""A PyTorch that lacks one of the private names that opwheel uses: what needs it says so, and all else works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opwheel._torch import names

PROGRAM = Path(__file__).with_name("hidden_names.py")
COMPILED = {"compiled", "compiled_in_place"}
# With a native library: what fails without a name, by what the table says of it. All else gives the right results.
FAILS = {
    names._LIBRARIES: {"import"},
    names._MEMORY: {"transforms"},
    names._IN_PYTHON: {"transforms"},  # torch.func goes through Python in any case
    names._COMPILED: {"compiled_in_place"},
    names._CLAIMS: {"eager", "gradients", "in_place", "transforms", "autocast", "compiled", "compiled_in_place"},
    "torch.autocast raises": {"autocast", "transforms"},
    "torch.compile breaks the graph at them": COMPILED,
}


@pytest.fixture(scope="module", params=["native", pytest.param("python", marks=pytest.mark.nightly)])
def reports(request):
    """By hidden name, what works; "-" is nothing hidden."""
    environment = {**os.environ, "OPWHEEL_AUTOGRAD": request.param, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, PROGRAM, "-", *names.NAMES]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return request.param, {report["name"]: report for report in found}


def test_nothing_is_hidden(reports):
    report = reports[1]["-"]
    assert (set(report["parts"].values()), report["said"]) == ({"right"}, [])


@pytest.mark.parametrize("path", names.NAMES)
def test_one_is_hidden(reports, path):
    way, found = reports
    report = found[path]
    failed = {part: text for part, text in report["parts"].items() if text != "right"}
    assert all(text != "wrong" for text in failed.values())
    name = names.NAMES[path]
    if name.without != "torch.compile breaks the graph at them":  # there PyTorch's own error says it
        assert all(f"has no {path}, which opwheel uses" in text for text in failed.values())
    if failed:
        assert [text for text in report["said"] if f"has no {path}," in text and name.without in text]
    if way == "native":
        assert set(failed) <= FAILS.get(name.without, set())
