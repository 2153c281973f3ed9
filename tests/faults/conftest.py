"""Fixtures of the fault tests: a site for plugins, compiled libraries, and processes that import muladd with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.forked_python import server

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


def search_path(folders: Iterable[Path]) -> str:
    """PYTHONPATH with more folders in front."""
    inherited = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*map(str, folders), *([inherited] if inherited else [])])


Run = Callable[..., dict[str, Any]]
Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Import muladd in a child and get the driver's report: ``run(site.root, MULADD_STRICT="1", then="...")``.

    PyTorch has a device npu there, unless it is told not to be ``registered``.
    """

    def start(
        *path: Path,
        before: str = "",
        then: str = "",
        registered: bool = True,
        device: bool = False,
        doctor: bool = False,
        finalize: bool = False,
        timeout: int = 60,
        **environment: str,
    ) -> dict[str, Any]:
        report = tmp_path / "report.json"
        report.unlink(missing_ok=True)
        request = {
            "registered": registered,
            "before": before,
            "then": then,
            "device": device,
            "doctor": doctor,
            "report": str(report),
        }
        done = server().run(
            HERE / "driver.py",
            json.dumps(request),
            environment=clean_environment({"PYTHONPATH": search_path(path), **environment}),
            finalize=finalize,
            timeout=timeout,
        )
        text = done.stderr + done.stdout
        assert done.returncode == 0, f"the child ended with {done.returncode}\n{text}"
        return {**(json.loads(report.read_text()) if report.exists() else {}), "log": text}

    return start


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run an interpreter of its own with folders on PYTHONPATH."""

    def start(*arguments: str, path: tuple[Path, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=clean_environment({"PYTHONPATH": search_path(path), **environment}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return start
