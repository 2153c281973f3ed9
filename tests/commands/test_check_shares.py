"""check and the kit on a backend that has a part of its operators: they test no kernels of the other backend."""

import subprocess
import sys

import pytest

from tests.faults.builder import Site
from tests.faults.conftest import clean_environment, search_path
from tests.matrix import outcomes

pytestmark = pytest.mark.slow  # the kit, and the process of the first calls

# All operators are computed by their references, add by this.
BACKEND = """
def register(target):
    from opwheel.dispatch import implement_functions, overloads_of

    overloads = overloads_of(target)
    chosen = [overloads[name] for name in {names} or overloads]
    implement_functions(target, chosen, "cpu", {{"add": lambda a, b: a {sign} b}})
"""
CHOSEN = ["-q", "-p", "no:cacheprovider", "-k", "test_special_values and float32 and (add or scale)"]
SERVED = "not tested, because they are not acme's here: first serves add, add.out; MULADD_BACKENDS=acme tests them"


@pytest.fixture
def python(tmp_path):
    """Runs a module where acme, whose add is wrong, comes second to a backend that has add alone."""
    site = Site(tmp_path / "site")
    fields = {"register": "register", "device_type": "'cpu'", "dispatch_key": "'CPU'"}
    site.install("acme", extra=BACKEND.format(names=[], sign="-"), **fields)
    first = BACKEND.format(names=["add", "add.out"], sign="+")
    site.install("first", extra=first, operators="['add', 'add.out']", priority="1", **fields)

    def run(*arguments, **environment):
        given = {"PYTHONPATH": search_path([site.root]), "MULADD_BACKENDS": "acme,first", **environment}
        command = [sys.executable, "-m", *arguments, *CHOSEN]
        return subprocess.run(command, env=clean_environment(given), capture_output=True, text=True, check=False)

    return run


def test_check_leaves_out_the_others(python):
    result = python("muladd", "check", "acme", "--")
    assert result.returncode == 1
    assert "first left out, for acme to have all its operators: MULADD_BACKENDS=acme\n" in result.stdout
    assert SERVED not in result.stdout
    found = outcomes(result.stdout)
    assert (found["add"], found["scale"]) == (["FAIL"], ["ok"])


def test_the_kit_says_what_it_does_not_test(python):
    kit = ["pytest", "--pyargs", "opwheel_tools.testing", "--library", "muladd", "--backend", "acme"]
    result = python(*kit)
    assert result.returncode == 0, result.stdout
    assert SERVED in result.stdout
    assert "not claimed by the backend" not in result.stdout
    assert outcomes(result.stdout)["add"] == ["--"]
    promised = python(*kit, MULADD_REQUIRE="acme")
    assert promised.returncode == 1
    assert f"MULADD_REQUIRE promises it, but {SERVED}" in promised.stdout
