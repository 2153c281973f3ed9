"""What holds for all tests of this repository."""

import os
import signal

import pytest
from hypothesis import settings

# How long an example takes says nothing on a loaded machine.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

# A shell without job control starts what is in the background with SIGINT ignored; so would be what tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is marked "nightly" is skipped, unless TEST_NIGHTLY=1 asks for it, as tests/nightly.py does."""
    if os.environ.get("TEST_NIGHTLY") != "1":
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(pytest.mark.skip(reason="make nightly"))
