"""The pytest plugin of the conformance kit: options and markers. Light, because every pytest run here imports it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the kit's options."""
    group = parser.getgroup("muladd", "conformance of an operator library's backend")
    group.addoption("--backend", metavar="NAME", help="the backend to test, as in its entry point")
    group.addoption("--library", metavar="MODULE", default="muladd", help="the operator library (muladd)")
    group.addoption("--device", metavar="DEVICE", help="a torch device, if not the backend's device type")
    group.addoption("--huge", action="store_true", help="also run tests that need over 20 GB on the device")
    group.addoption("--matrix", metavar="FILE", help="write the coverage matrix as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the kit's markers."""
    config.addinivalue_line("markers", "subsystem(name): what of PyTorch the test is about; a column of the matrix")
    config.addinivalue_line("markers", "compiles: runs torch.compile, which needs a C++ compiler")
    config.addinivalue_line("markers", "huge: needs more than 20 GB of memory on the device")
