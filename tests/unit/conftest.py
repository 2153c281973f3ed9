"""Tests in this folder start no process and open no connection, so that the whole folder takes seconds: they say so."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
# Python raises these audit events, whichever function a test or the code under test calls.
FORBIDDEN = {
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.exec": "replaces the process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.spawn": "starts a process",
    "socket.connect": "opens a connection",
    "socket.getaddrinfo": "looks up an address",
}
_running = []  # the unit test that runs now; an audit hook cannot be taken away again


def _refuse(event, args):
    if _running and event in FORBIDDEN:
        pytest.fail(
            f"{_running[-1]} {FORBIDDEN[event]} ({event}{args!r}); a test of tests/unit must not: with processes "
            "it belongs in tests/processes, with compilers in tests/toolchain (CONTRIBUTING.md, Tests)"
        )


sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test with its fixtures. Pytest calls this for tests of other folders, too."""
    if not item.path.is_relative_to(FOLDER):
        return (yield)
    _running.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running.pop()
