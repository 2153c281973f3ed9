"""The conformance kit of transformer-ops-core, with this backend alone."""

import json
import os
import subprocess
import sys

import pytest

REQUIRE = "TRANSFORMER_OPS_REQUIRE"
ENVIRONMENT = {**os.environ, "TRANSFORMER_OPS_BACKENDS": "cpu"}
STATE = "import json, transformer_ops; print(json.dumps(transformer_ops.backends()['cpu'].as_json()))"


@pytest.fixture(scope="module")
def status():
    """What became of the backend in a process of its own."""
    command = [sys.executable, "-c", STATE]
    return json.loads(subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout)


def test_it_loads_or_says_what_the_machine_lacks(status):
    assert status["state"] in ("loaded", "unsupported"), status["reason"]
    assert status["state"] == "loaded" or status["reason"]


def test_conformance(status):
    if status["state"] == "unsupported" and os.environ.get(REQUIRE) != "cpu":
        pytest.skip(status["reason"])
    kit = ["--pyargs", "opwheel_tools.testing", "--library", "transformer_ops", "--backend", "cpu"]
    command = [sys.executable, "-m", "pytest", *kit, "-q", "-W", "ignore::DeprecationWarning"]
    assert subprocess.run(command, env={**ENVIRONMENT, REQUIRE: "cpu"}, check=False).returncode == 0
