"""What the environment names is anything but a file: it is refused by name, and nothing hangs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from opwheel.registry.variables import KNOWN

from .builder import Site
from .conftest import Run

TIMEOUT = 20  # seconds, of which an import takes one


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def listening_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return path


def endless_device(_path: Path) -> Path:
    return Path("/dev/zero")


def empty_device(_path: Path) -> Path:
    return Path("/dev/null")


def terabyte(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(2**40)
    return path


def link_to_a_pipe(path: Path) -> Path:
    path.symlink_to(pipe(path.with_suffix(".fifo")))
    return path


def memory(_path: Path) -> Path:
    return Path("/proc/self/mem")


# How each is made, and what is said of it.
KINDS: dict[Callable[[Path], Path], str] = {
    folder: "it is a directory, not a regular file",
    pipe: "it is a pipe, not a regular file",
    listening_socket: "it is a socket, not a regular file",
    endless_device: "it is a character device, not a regular file",
    empty_device: "it is a character device, not a regular file",
    terabyte: "it is larger than",
    link_to_a_pipe: "it is a pipe, not a regular file",
    memory: "Input/output error",
}
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@kinds
def test_in_every_variable(kind: Callable[[Path], Path], tmp_path: Path, run: Run) -> None:
    """All variables of the library have that value, but the one after which the import fails."""
    path = str(kind(tmp_path / "named"))
    variables = {f"MULADD_{name}": path for name in KNOWN if name != "LOCK"}
    report = run(timeout=TIMEOUT, **variables)
    assert "error" not in report, report["error"]["traceback"]
    [finding] = [finding for finding in report["findings"] if finding["code"] == "OPWHEEL-E010"]
    assert f"{path}: cannot be read: {KINDS[kind]}" in finding["message"]
    assert "unset MULADD_PLUGINS" in finding["fix"]


@kinds
def test_as_the_lock_file(kind: Callable[[Path], Path], tmp_path: Path, run: Run) -> None:
    path = kind(tmp_path / "named")
    error = run(timeout=TIMEOUT, MULADD_LOCK=str(path))["error"]
    assert error["type"] == "LockError"
    assert f"{path}: cannot be read: {KINDS[kind]}" in error["text"]
    assert "OPWHEEL-E070" in error["text"]


@kinds
def test_as_the_library_of_a_plugin(kind: Callable[[Path], Path], tmp_path: Path, site: Site, run: Run) -> None:
    """Which the plugin names; the other backends are none the worse."""
    path = kind(tmp_path / "named")
    site.install("acme", libraries=f"[{str(path)!r}]")
    report = run(site.root, timeout=TIMEOUT, doctor=True)
    assert (report["statuses"]["acme"]["state"], report["statuses"]["acme"]["code"]) == ("broken", "OPWHEEL-E050")
    assert str(path) in report["statuses"]["acme"]["reason"]
    assert report["statuses"]["cpu"]["state"] == "loaded"


@pytest.mark.parametrize("gone", [False, True], ids=["", "the current folder is gone"])
@pytest.mark.parametrize("variable", ["PLUGINS", "LOCK"])
def test_a_relative_path_is_said_in_full(variable: str, gone: bool, tmp_path: Path, run: Run) -> None:
    work = folder(tmp_path / "work")
    before = f"import os; os.chdir({str(work)!r}); os.environ['MULADD_{variable}'] = 'mine/file'\n"
    report = run(before=before + ("os.rmdir(os.getcwd())" if gone else ""))
    text = report["error"]["text"] if variable == "LOCK" else report["findings"][0]["message"]
    assert f"{'mine/file' if gone else work / 'mine/file'}: cannot be read: No such file or directory" in text


DEEP = "[" * 100_000


@pytest.mark.parametrize("content", [DEEP, f'{{"format": {DEEP}'], ids=["list", "value"])
def test_a_lock_file_within_a_lock_file(content: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "muladd.lock"
    path.write_text(content)
    error = run(MULADD_LOCK=str(path))["error"]
    assert error["type"] == "LockError"
    assert f"{path}: is not JSON: " in error["text"]
