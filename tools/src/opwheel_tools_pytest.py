"""The pytest plugin of the conformance kit: its options. Light: every pytest run imports it where opwheel is."""

from __future__ import annotations

import pytest


def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Add the kit's options where the kit is run: other projects may have options of the same names.

    The kit's own conftest.py cannot do it: with ``--pyargs`` pytest finds it after it has read the command line.
    """
    if not any("opwheel_tools.testing" in argument or "opwheel/testing" in argument for argument in args):
        return
    group = parser.getgroup("opwheel", "conformance of an operator library's backend")
    group.addoption("--library", metavar="MODULE", help="the operator library")
    group.addoption("--backend", metavar="NAME", help="the backend to test, as in its entry point")
    group.addoption("--operators", metavar="NAMES", help="test these alone, with their overloads: mul,add")
    group.addoption("--device", metavar="DEVICE", help="a torch device, if not the backend's device type")
    group.addoption("--huge", action="store_true", help="also run tests that need over 20 GB on the device")
    group.addoption(
        "--whole-kit", action="store_true", help="also tests that depend on no device: another may run them"
    )
    group.addoption("--matrix", metavar="FILE", help="write the coverage matrix as JSON")
    group.addoption("--current-test", metavar="FILE", help="write the name of each test there before it begins")
