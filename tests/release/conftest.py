"""Fresh environments that take PyTorch and everything else but opwheel and muladd from the one that runs the tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SITE = Path(os.path.dirname(os.path.dirname(pytest.__file__)))  # noqa: PTH120


class Environment:
    """An interpreter with neither opwheel nor muladd until they are installed."""

    def __init__(self, python: Path) -> None:
        self.python = python

    def pip(self, *arguments: object) -> str:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def install(self, *wheels: Path) -> None:
        # --no-deps: what the wheels require is borrowed, or deliberately of another version.
        self.pip("install", "--quiet", "--no-deps", *wheels)

    def run(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MULADD_", "PYTHON"))}
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            env=inherited | environment, cwd=self.python.parents[1], capture_output=True, text=True, check=False,
        )  # fmt: skip

    def doctor(self) -> dict[str, Any]:
        result = self.run("-m", "muladd", "doctor", "--json")
        assert result.returncode in (0, 1), result.stderr
        return json.loads(result.stdout)

    def states(self) -> dict[str, tuple[str, str]]:
        """State and version of every backend."""
        return {name: (one["state"], one["version"]) for name, one in self.doctor()["backends"].items()}


def check_passed(done: subprocess.CompletedProcess[str]) -> None:
    """Tests passed in another environment; how many is printed, which ``pytest -rP`` shows."""
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    count = done.stdout.splitlines()[-1]
    assert " passed" in count, done.stdout[-8000:]
    print(count)


def check_lock(environment: Environment, lock: Path) -> None:
    """The wheels that are installed are those of a lock of them, and no others."""
    written = environment.run("-m", "muladd", "lock", lock)
    assert written.returncode == 0, written.stdout + written.stderr
    assert environment.run("-c", "import muladd", MULADD_LOCK=str(lock)).returncode == 0
    document = json.loads(lock.read_text())
    document["distributions"]["muladd-cpu"]["sha256"] = "0" * 64
    lock.write_text(json.dumps(document))
    assert environment.run("-m", "muladd", "lock", lock, "--check").returncode == 1


@pytest.fixture(scope="session")
def borrowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to all that is installed here, less opwheel, muladd and what belongs to one environment."""
    folder = tmp_path_factory.mktemp("borrowed")
    for entry in SITE.iterdir():
        if not entry.name.startswith(("opwheel", "muladd", "__editable__", "_virtualenv", "pip", "__pycache__")):
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture
def environment(tmp_path: Path, borrowed: Path) -> Environment:
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python3.*/site-packages")
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    return Environment(folder / "bin/python")


@pytest.fixture(scope="session")
def built() -> dict[str, Path]:
    """The wheels in dist/ by project."""
    found = {path.name.partition("-")[0]: path for path in (ROOT / "dist").glob("*.whl")}
    assert found, "there is no wheel in dist/: make wheels"
    return {name.removeprefix("muladd_"): path for name, path in found.items()}


def find_python(version: str) -> str:
    """An interpreter of that version, from PATH, pyenv or `make interpreters`; the test is skipped if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [*sorted(map(str, pyenv.glob(f"{version}.*/bin/python"))), shutil.which(f"python{version}")]
    candidates += map(str, ROOT.glob(f".venv-{version}/bin/python{version}"))
    for python in filter(None, candidates):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
        if found == version:
            return python
    if f"python{version}" in os.environ.get("MULADD_REQUIRE", "").split(","):
        pytest.fail(f"MULADD_REQUIRE promises python{version}, but there is none on PATH, under {pyenv} or in {ROOT}")
    return pytest.skip(f"there is no Python {version} here; make interpreters builds 3.14 and 3.15")


MakeEnvironment = Callable[[str], Environment]


@pytest.fixture
def bare(tmp_path: Path) -> MakeEnvironment:
    """An environment of another Python, which no PyTorch is there for."""

    def make(version: str) -> Environment:
        folder = tmp_path / f"env{version}"
        subprocess.run([find_python(version), "-m", "venv", "--without-pip", str(folder)], check=True)
        return Environment(folder / "bin/python")

    return make
