"""The same wheel files in every supported Python, of which PyTorch is at hand for one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from .conftest import MakeEnvironment

pytestmark = [pytest.mark.slow, pytest.mark.wheels]

# The registry reads policy, plugins and the lock's inventory without PyTorch.
WITHOUT_TORCH = """
import importlib, site, sys
from pathlib import Path
root = Path(site.getsitepackages()[0], "muladd")
from opwheel import registry
for name in ("backend", "discovery", "elf", "errors", "hooks", "installed", "lock", "policy", "resolution", "status"):
    importlib.import_module(f"opwheel.registry.{name}")
policy = registry.policy.read_policy(root / "plugins.toml", {}, "MULADD")
assert "cpu" in policy.backends and not policy.findings, policy
found, findings = registry.discovery.find_plugins("muladd.backends")
assert not findings, findings
for plugin in sorted(found):
    backend = registry.discovery.read_plugin(plugin, "opwheel_backend", registry.Backend)
    print(plugin.name, backend.dispatch_key)
inventory = registry.lock.take_inventory("muladd-core", ["muladd.backends"])
assert inventory.problems == [], inventory
assert "torch" not in sys.modules
"""

# PyTorch's C++ libraries belong to no Python: whichever is at hand will do.
OPEN_LIBRARIES = """
import ctypes, site, sys
from pathlib import Path
root = Path(site.getsitepackages()[0])
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from opwheel.registry.abi import read_notes
for library in (root / "muladd/libmuladd_schema.so", root / "muladd_cpu/libmuladd_cpu.so"):
    ctypes.CDLL(str(library))
    print("ABI", read_notes(library).abi)
"""


@pytest.fixture(scope="session")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the registry requires that is written in Python alone."""
    folder = tmp_path_factory.mktemp("pure")
    for name in ("pluggy", "packaging"):
        for file in metadata.files(name) or ():
            if file.suffix != ".pyc" and ".." not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(Path(str(file.locate())).read_bytes())
    return folder


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"])
def test_wheels_install_compile_and_open(
    version: str, built: dict[str, Path], bare: MakeEnvironment, pure: Path
) -> None:
    environment = bare(version)
    environment.install(*built.values())  # pip compares the tags
    folder = environment.python.parents[1] / f"lib/python{version}/site-packages"
    assert sorted(path.name for path in folder.glob("*.dist-info")) == sorted(
        f"{path.name.partition('-py3')[0]}.dist-info" for path in built.values()
    )
    compiled = environment.run("-W", "error", "-m", "compileall", "-q", "-f", folder)
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
    imported = environment.run("-c", WITHOUT_TORCH, PYTHONPATH=str(pure))
    assert imported.returncode == 0, imported.stderr
    assert "cpu CPU\n" in imported.stdout
    torch = Path(importlib.util.find_spec("torch").origin).parent / "lib/libtorch_cpu.so"
    opened = environment.run("-c", OPEN_LIBRARIES, torch, PYTHONPATH=str(pure))
    assert opened.stdout == "ABI 1\n" * 2, opened.stderr


def test_an_older_python_is_refused(built: dict[str, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.9", "--target", str(tmp_path), str(built["core"])]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "3.9" in result.stderr
    assert ">=3.10" in result.stderr
