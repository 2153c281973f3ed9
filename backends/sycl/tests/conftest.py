"""These tests run in an environment with the SYCL runtime, on the simulated XPUs: `make test-sycl`."""

import os
import sys

import pytest


@pytest.fixture(autouse=True, scope="session")
def simulator():
    """The package simulated_xpu, which ``-p simulated_xpu`` has put into the process before muladd was imported."""
    if "simulated_xpu" in sys.modules:
        return sys.modules["simulated_xpu"]
    reason = "needs the simulated XPUs: make test-sycl"
    if "sycl" in os.environ.get("MULADD_REQUIRE", "").split(","):
        pytest.fail(f"MULADD_REQUIRE promises sycl, but it {reason}")
    pytest.skip(reason)
