"""Which tests of the conformance kit run for which backend."""

import os
import re

import pytest

from tests.faults.builder import Site
from tests.forked_python import server

pytestmark = pytest.mark.slow  # the kit is collected each time

PROBE = "lambda: Probe(False, 'there is none')"


@pytest.fixture(scope="module")
def collect(tmp_path_factory):
    """Collects the kit for a backend, beside muladd-cpu; the names of its tests, and what is said at the end."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.install("acme", probe=PROBE)

    def run(backend, *options, **variables):
        command = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
        command += ["--pyargs", "opwheel_tools.testing", "--library", "muladd", "--backend", backend, *options]
        environment = {**os.environ, "PYTHONPATH": str(site.root), **variables}
        result = server().run(*command, environment=environment)
        assert result.returncode == 0, result.stdout + result.stderr
        return {match[1] for match in re.finditer(r"::(test_\w+)", result.stdout)}, result.stdout.splitlines()[-3:]

    return run


@pytest.mark.parametrize(
    ("backend", "options", "variables"),
    [
        ("cpu", (), {}),
        ("acme", ("--whole-kit",), {}),
        ("acme", (), {"MULADD_BACKENDS": "acme"}),
    ],
    ids=["the CPU's own", "asked for", "no other backend"],
)
def test_the_whole_kit(collect, backend, options, variables):
    names, said = collect(backend, *options, **variables)
    assert {"test_trace_and_save", "test_layouts"} <= names
    assert not any("left out" in line for line in said)


def test_another_device_beside_the_cpu(collect):
    names, said = collect("acme")
    assert "test_layouts" in names
    assert "test_trace_and_save" not in names
    (line,) = [line for line in said if "left out" in line]
    assert re.fullmatch(r"\d{3} tests depend on no device .* --backend cpu, or here with --whole-kit", line)
