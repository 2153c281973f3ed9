"""What tests/unit/conftest.py forbids is noticed, also where the code under test catches every exception."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest


def spawn():
    os.posix_spawn(sys.executable, [sys.executable, "-V"], {})


def connect():
    with socket.socket() as connection:
        connection.connect(("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: subprocess.run(["true"], check=True), r"starts a process \(subprocess.Popen.*tests/processes"),
        (lambda: os.system("true"), "starts a process"),
        (spawn, "starts a process"),
        (os.fork, "starts a process"),
        (connect, "opens a connection"),
    ],
    ids=["run", "system", "spawn", "fork", "connect"],
)
def test_is_refused(function, words):
    with pytest.raises(pytest.fail.Exception, match=words), contextlib.suppress(Exception):
        function()
