"""Fixtures of the fault tests: a site for plugins, compiled libraries, and children that import muladd with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from .builder import Compiler, Site

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without muladd's variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MULADD_")}
    return {**inherited, **(extra or {})}


class Zygote:
    """Starts children that have PyTorch already; see zygote.py."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py")],
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, request: Mapping[str, Any]) -> int:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    server = Zygote()
    yield server
    server.close()


Run = Callable[..., dict[str, Any]]
Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(zygote: Zygote, tmp_path: Path) -> Run:
    """Import muladd in a child and get the driver's report: ``run(site.root, MULADD_STRICT="1", then="...")``."""

    def start(
        *path: Path,
        before: str = "",
        then: str = "",
        device: bool = False,
        doctor: bool = False,
        finalize: bool = False,
        timeout: int = 60,
        **environment: str,
    ) -> dict[str, Any]:
        report, log = tmp_path / "report.json", tmp_path / "log.txt"
        report.unlink(missing_ok=True)
        code = zygote.run(
            {
                "path": [str(folder) for folder in path],
                "environment": environment,
                "before": before,
                "then": then,
                "device": device,
                "doctor": doctor,
                "finalize": finalize,
                "timeout": timeout,
                "report": str(report),
                "log": str(log),
            }
        )
        text = log.read_text(errors="replace")
        assert code == 0, f"the child ended with {code}\n{text}"
        return {**(json.loads(report.read_text()) if report.exists() else {}), "log": text}

    return start


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run an interpreter of its own with folders on PYTHONPATH."""

    def start(*arguments: str, path: tuple[Path, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = os.environ.get("PYTHONPATH", "")
        search = os.pathsep.join([*map(str, path), *([inherited] if inherited else [])])
        return subprocess.run(
            [sys.executable, *arguments],
            env=clean_environment({"PYTHONPATH": search, **environment}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return start
